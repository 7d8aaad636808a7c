//! `cargo xtask bench octavia`: services get their load balancers from a real Octavia.
//!
//! The calls that a cluster's services take until all are served, against the least that is possible; the time until a change of
//! endpoints is sent; and the calls for many changes while a load balancer is busy. Octavia itself counts the calls.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod balancers;
mod cluster;
mod program;
mod report;
mod wait;

use std::time::{Duration, Instant};

use http::Method;
use staffetta_real_openstack::{Match, RealOpenStack, Service};

use balancers::Shop;
use report::{Row, largest, median, milliseconds, number, publish};

/// The number of ports and of endpoints of a service.
const PORTS: u16 = 3;
const ENDPOINTS: u8 = 10;
/// The number of endpoint changes measured one by one, and of those that arrive while a load balancer is busy.
const CHANGES: usize = 20;
/// The endpoints after each of these changes, in turns: one comes, one takes the place of another, one goes, and one takes the
/// place of the last.
const CHANGED: [(u8, u8); 4] = [(0, 2), (1, 3), (2, 3), (0, 1)];
const FLOOD: usize = 100;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("octavia", &runtime.block_on(run()));
}

async fn run() -> Vec<Row> {
    let stack = RealOpenStack::launch(&[]).await;
    let mut rows = sync(&stack).await;
    rows.extend(changes(&stack).await);
    rows
}

/// All services of a cluster at once.
async fn sync(stack: &RealOpenStack) -> Vec<Row> {
    let count = number("STAFFETTA_BENCH_SERVICES", 100);
    let shop = Shop::new(stack).await;
    let before = stack.calls(Service::Octavia).await;
    let controller = shop.controller().await;
    let begun = Instant::now();
    shop.services(count, PORTS, ENDPOINTS).await;
    shop.until_active(count, PORTS, ENDPOINTS).await;
    let took = begun.elapsed().as_secs_f64();
    shop.until_written(count).await;
    let calls = stack.calls(Service::Octavia).await.since(&before).of_controller(&shop.tenant.id);
    controller.stop().await;
    let (all, creations) = (calls.count(|_| true), calls.count(|call| call.method == "POST"));
    let name = format!("Octavia calls, {count} services x {PORTS} ports x {ENDPOINTS} members");
    let ratio = all as f64 / count as f64;
    vec![
        Row::new(name, "1", all as f64)
            .against(count as f64)
            .goal("at most 1.2 times the least", ratio <= 1.2),
        Row::new("of which make something", "1", creations as f64)
            .goal(format!("{count}"), creations == count),
        Row::new("until all are ACTIVE", "s", took),
    ]
}

/// Changes of endpoints, one by one and many at once.
async fn changes(stack: &RealOpenStack) -> Vec<Row> {
    let shop = Shop::new(stack).await;
    let controller = shop.controller().await;
    shop.services(1, 1, 1).await;
    shop.until_members(0..1).await;
    shop.until_written(1).await;
    let batches = Match::any().method(Method::PUT).path("/members");
    let (before, mut late) = (shop.gate.count(&batches), Vec::new());
    for (first, end) in CHANGED.into_iter().cycle().take(CHANGES) {
        let sent = shop.gate.count(&batches);
        let begun = Instant::now();
        shop.endpoints(0, 1, first..end).await;
        let came = shop.until_batches(sent + 1).await;
        late.push(milliseconds(came.saturating_duration_since(begun)));
        shop.until_members(first..end).await;
        // The pace of the changes: by then the controller knows that the load balancer is ACTIVE, which it learns a quarter of the
        // wait late.
        tokio::time::sleep(Duration::from_millis(300) + begun.elapsed() / 2).await;
    }
    let batches_for_changes = shop.gate.count(&batches) - before;
    let flooded = flood(&shop, &batches).await;
    controller.stop().await;
    let most = largest(&late);
    vec![
        Row::new("from a change of endpoints to its one batch call, median", "ms", median(late)),
        Row::new(format!("the same, longest of {CHANGES}"), "ms", most).goal("at most 50 ms", most <= 50.0),
        Row::new(format!("batch calls for these {CHANGES} changes"), "1", batches_for_changes as f64)
            .goal(format!("{CHANGES}"), batches_for_changes == CHANGES),
        Row::new(format!("batch calls for {FLOOD} changes while it is busy"), "1", flooded as f64)
            .goal("1", flooded == 1),
    ]
}

/// Counts the batch calls caused by many changes while the load balancer is PENDING. The last change differs from all
/// before.
async fn flood(shop: &Shop, batches: &Match) -> usize {
    const BUSY: u8 = 60;
    const LAST: u8 = 70;
    let sent = shop.gate.count(batches);
    shop.hold().await;
    // From this one on it is busy, by the answers that the controller gets.
    shop.endpoints(0, 1, 0..BUSY).await;
    shop.until_batches(sent + 1).await;
    for change in 1..=FLOOD {
        let count = if change == FLOOD { LAST } else { 1 + u8::try_from(change % 50).unwrap_or_default() };
        shop.endpoints(0, 1, 0..count).await;
    }
    shop.gate.clear();
    shop.until_members(0..LAST).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // for calls that should not come
    shop.gate.count(batches) - sent - 1
}
