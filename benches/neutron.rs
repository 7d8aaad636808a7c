//! `cargo xtask bench neutron`: pods get their ports from a real Neutron and show them on a real API server.
//!
//! Pods per second without a pool, beside the better of bare creation with 16 calls in flight and bare bulk creation; pods per
//! second with a warm pool, beside ports that are created one by one; the time until one pod has its VIF from a warm pool; the
//! delay until a port that became ACTIVE is seen; and the calls and writes of all of it, counted outside the controller.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod cloud;
mod cluster;
mod program;
mod proxy;
mod report;
mod wait;

use std::path::Path;
use std::time::{Duration, Instant};

use kube::Client;
use staffetta_apiserver::testing::RealServer;
use staffetta_real_openstack::{Gate, Match, RealOpenStack, Service};

use cloud::{IN_FLIGHT, Place, Watched, bare, bulk};
use report::{Row, largest, median, milliseconds, number, publish};

/// A pool of this size at least.
const POOL: usize = 300;

/// The number of ports created at a time.
const BATCH: usize = 100;

/// The numbers of pods that arrive alone, that become active after a delay of their own, and that are VLANs of their
/// node.
const ALONE: usize = 30;
const LATE: usize = 12;
/// The number of pods waiting while their ports become active one after the other.
const CROWD: usize = 100;
const NESTED: usize = 20;
/// The time between two ports that become active one after the other.
const PACE: Duration = Duration::from_millis(50);

/// The allowance for seeing that a port became ACTIVE, beside a quarter of the wait for it: a call to Neutron and a PATCH.
const ALLOWANCE: Duration = Duration::from_millis(250);
/// The same while many ports are polled together: two such calls, as one may be in flight already, and a PATCH.
const CROWD_ALLOWANCE: Duration = Duration::from_millis(500);

/// The drivers without a pool.
const NO_POOL: (&str, &str) = ("neutron-vif", "noop");

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("neutron", &runtime.block_on(run()));
}

async fn run() -> Vec<Row> {
    let stack = RealOpenStack::launch(&["--workers", "2"]).await;
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let bench = Bench { stack, client, kubeconfig: server.kubeconfig() };
    let mut rows = bench.without_pool().await;
    rows.extend(bench.with_pool().await);
    rows.extend(bench.nested().await);
    rows.extend(bench.activation().await);
    rows.extend(bench.at_once().await);
    rows
}

struct Bench<'a> {
    stack: RealOpenStack,
    client: Client,
    kubeconfig: &'a Path,
}

impl Bench<'_> {
    async fn place(&self, delay: Option<Duration>, number: usize) -> Place {
        Place::new(&self.stack, delay, number).await
    }

    /// Ours between theirs, in turns.
    async fn without_pool(&self) -> Vec<Row> {
        let count = number("STAFFETTA_BENCH_PODS", 100);
        let (mut ours, mut concurrent, mut bulks, mut ratios) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..number("STAFFETTA_BENCH_ROUNDS", 3) {
            let place = self.place(None, round).await;
            let login = place.tenant.login();
            let many = bare(&place, &login, count, IN_FLIGHT).await;
            let place = self.place(None, round).await;
            let controller = place.controller(self.kubeconfig, &place.tenant.login(), NO_POOL, "").await;
            let names = place.names("alone", count);
            place.create(&self.client, &names).await;
            controller.passed().until_patched(&names, 1).await;
            let rate = controller.rate(&names);
            controller.program.stop().await;
            self.forget(&names).await;
            let place = self.place(None, round).await;
            let at_once = bulk(&place, &place.tenant.login(), count, 50).await;
            ratios.push(rate / many.max(at_once));
            ours.push(rate);
            concurrent.push(many);
            bulks.push(at_once);
        }
        let ratio = median(ratios);
        vec![
            Row::new("pods a second without a pool", "1/s", median(ours)).against(median(concurrent)),
            Row::new("bare bulk creation", "1/s", median(bulks)),
            Row::new("the same, against the better of both", "ratio", ratio)
                .goal("at least 0.9", ratio >= 0.9),
        ]
    }

    async fn with_pool(&self) -> Vec<Row> {
        let place = self.place(Some(Duration::ZERO), 10).await;
        let single = bare(&place, &place.tenant.login(), 40, 1).await;
        let gate = self.stack.gate().await;
        let login = place.tenant.login_through(&gate);
        let before = self.stack.calls(Service::Neutron).await;
        let options =
            format!("[vif_pool]\nports_pool_min = {POOL}\nports_pool_batch = {BATCH}\nports_pool_max = 0\n");
        let drivers = ("neutron-vif", "neutron");
        let controller = place.controller(self.kubeconfig, &login, drivers, &options).await;
        // The first pod fills the pool, the second one lets it grow by a batch: then it is at rest for as long as pods come alone.
        let first = place.names("first", 2);
        place.create(&self.client, &first[..1]).await;
        place.until_full(40 + POOL + 1).await;
        place.create(&self.client, &first[1..]).await;
        place.until_full(40 + POOL + 1 + BATCH).await;

        let mut rows = self.one_by_one(&place, &controller, &gate, &first).await;
        let names = place.names("burst", POOL);
        place.create(&self.client, &names).await;
        controller.passed().until_patched(&names, 1).await;
        let rate = controller.rate(&names);
        controller.passed().until_patched(&names, 2).await;
        let (writes, others) = (controller.writes(&names), controller.passed().others() as f64);
        controller.program.stop().await;
        let all = self.stack.calls(Service::Neutron).await.since(&before).of_controller(&place.tenant.id);
        let all = all.count(|_| true) as f64;
        let by_the_gate = gate.count(&Match::any().path("/network/"));
        assert!(all <= by_the_gate as f64, "the gate sees what Neutron counts");
        let pods: Vec<_> = [first, place.names("one", ALONE), names].concat();
        self.forget(&pods).await;
        rows.push(Row::new("Neutron calls a pod, with the pool's own", "1", all / pods.len() as f64));
        rows.push(
            Row::new(format!("pods a second, {POOL} at once from a pool of {POOL}"), "1/s", rate)
                .against(single)
                .goal("at least 10 times single creations", rate >= 10.0 * single),
        );
        rows.push(Row::new("writes a pod until it is active", "1", writes).goal("2", writes <= 2.0));
        rows.push(Row::new("reads and Events in all", "1", others).goal("0", others == 0.0));
        rows
    }

    /// Pods that come alone while the pool is warm.
    async fn one_by_one(
        &self,
        place: &Place,
        controller: &Watched,
        gate: &Gate,
        first: &[String],
    ) -> Vec<Row> {
        controller.passed().until_patched(first, 2).await;
        let names = place.names("one", ALONE);
        let patch = bare_patch(controller, &first[0]).await;
        for name in &names {
            place.create(&self.client, std::slice::from_ref(name)).await;
            controller.passed().until_patched(std::slice::from_ref(name), 2).await;
        }
        let seen = gate.seen();
        let (mut times, mut calls) = (Vec::new(), 0);
        for name in &names {
            let delivered = controller.passed().delivered(name);
            let written = controller.passed().acknowledged(name)[0];
            times.push(milliseconds(written.duration_since(delivered)));
            calls += seen.iter().filter(|call| delivered <= call.came && call.came <= written).count();
        }
        let (most, half) = (largest(&times), median(times));
        vec![
            Row::new("one pod, pool warm: event to annotation, median", "ms", half).against(patch),
            Row::new(format!("the same, longest of {ALONE}"), "ms", most)
                .against(patch)
                .goal("at most 20 ms more than a PATCH", most <= 20.0 + patch),
            Row::new("Neutron calls on the way", "1", calls as f64).goal("0", calls == 0),
        ]
    }

    /// Pods whose ports are ACTIVE before they are handed out.
    async fn nested(&self) -> Vec<Row> {
        let place = self.place(Some(Duration::ZERO), 30).await;
        let machine = place.machine().await;
        let gate = self.stack.gate().await;
        let options = format!(
            "[vif_pool]\nports_pool_min = {NESTED}\nports_pool_batch = {NESTED}\n\
             [pod_vif_nested]\nworker_nodes_subnets = [{:?}]\n",
            machine.subnet.id
        );
        let (login, drivers) = (place.tenant.login_through(&gate), ("nested-vlan", "nested"));
        let controller = place.controller(self.kubeconfig, &login, drivers, &options).await;
        let first = place.names("parent", 1);
        machine.create(&place, &self.client, &first).await;
        controller.passed().until_patched(&first, 1).await;
        place.until_full(NESTED + 1).await;
        // The polls end once all of them are known to be ACTIVE.
        let mut looks = None;
        while looks != Some(gate.seen().len()) {
            looks = Some(gate.seen().len());
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        let names = place.names("vlan", NESTED);
        machine.create(&place, &self.client, &names).await;
        controller.passed().until_patched(&names, 1).await;
        let active = cluster::versions(&self.client).await;
        let active = names.iter().filter(|name| {
            let shown = active.get(*name).and_then(|(_, _, annotation)| annotation.as_deref());
            shown.is_some_and(|text| text.contains(r#""active":true"#))
        });
        let active = active.count();
        assert_eq!(active, NESTED, "each shows an active VIF after its first write");
        // A late write would be one too many.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (writes, others) = (controller.writes(&names), controller.passed().others() as f64);
        controller.program.stop().await;
        self.forget(&[first, names].concat()).await;
        vec![
            Row::new("writes a pod, of a pool of subports", "1", writes).goal("1", writes <= 1.0),
            Row::new("reads and Events in all, of the same", "1", others).goal("0", others == 0.0),
        ]
    }

    /// Takes pods away for which no controller works any more.
    async fn forget(&self, names: &[String]) {
        cluster::reset(&self.client, names).await;
        cluster::end(&self.client, names).await;
    }

    /// Measures the delay from the moment at which Neutron has a port ACTIVE to the write that shows it, after waits of many lengths.
    async fn activation(&self) -> Vec<Row> {
        let place = self.place(None, 20).await;
        // Ports are found by the names of their pods.
        let options = "port_debug = true";
        let controller = place.controller(self.kubeconfig, &place.tenant.login(), NO_POOL, options).await;
        let mut shares = Vec::new();
        for (number, name) in place.names("late", LATE).iter().enumerate() {
            let wait = Duration::from_millis(300 + 400 * number as u64);
            let names = std::slice::from_ref(name);
            shares.push(self.activate(&place, &controller, names, wait, ALLOWANCE).await);
        }
        let names = place.names("crowd", CROWD);
        let crowd = self.activate(&place, &controller, &names, Duration::ZERO, CROWD_ALLOWANCE).await;
        controller.program.stop().await;
        self.forget(&[place.names("late", LATE), names].concat()).await;
        let (most, allowance, crowd_allowance) =
            (largest(&shares), ALLOWANCE.as_millis(), CROWD_ALLOWANCE.as_millis());
        vec![
            Row::new(format!("seen ACTIVE late, share of the wait, most of {LATE}"), "ratio", most)
                .goal(format!("at most 0.25 and {allowance} ms"), most <= 0.25),
            Row::new(format!("the same, of {CROWD} that wait at a time"), "ratio", crowd)
                .goal(format!("at most 0.25 and {crowd_allowance} ms"), crowd <= 0.25),
        ]
    }

    /// Pods that arrive at once, without a pool, and whose ports become ACTIVE as soon as they are bound.
    async fn at_once(&self) -> Vec<Row> {
        let place = self.place(Some(Duration::ZERO), 40).await;
        let controller = place.controller(self.kubeconfig, &place.tenant.login(), NO_POOL, "").await;
        let names = place.names("wired", number("STAFFETTA_BENCH_PODS", 100));
        place.create(&self.client, &names).await;
        let passed = controller.passed();
        passed.until_patched(&names, 2).await;
        let begun = names.iter().map(|name| passed.delivered(name)).min().expect("there are pods");
        let [annotated, active] = [0, 1].map(|write| {
            let times = names.iter().map(|name| passed.acknowledged(name)[write].duration_since(begun));
            median(times.map(milliseconds).collect())
        });
        controller.program.stop().await;
        self.forget(&names).await;
        let (count, ratio) = (names.len(), active / annotated);
        vec![
            Row::new(format!("{count} pods at once: until a pod shows its VIF, median"), "ms", annotated),
            Row::new("the same, until that is active", "ms", active).against(annotated),
            Row::new("the same, active against shown", "ratio", ratio).goal("at most 1.3", ratio <= 1.3),
        ]
    }

    /// Creates pods, lets their ports become ACTIVE one after the other, and returns the largest delay beyond the allowance, as a
    /// share of the pod's wait.
    async fn activate(
        &self,
        place: &Place,
        controller: &Watched,
        names: &[String],
        wait: Duration,
        allowance: Duration,
    ) -> f64 {
        let agents = self.stack.agents();
        place.create(&self.client, names).await;
        controller.passed().until_patched(names, 1).await;
        let ports = place.ports().await;
        tokio::time::sleep(wait).await;
        let mut became = Vec::new();
        for name in names {
            let port = ports.iter().find(|port| port.name.ends_with(name.as_str()) && !port.active());
            let port = port.expect("the port bears the name of its pod");
            assert!(agents.up(&port.id).await, "the port is bound");
            became.push(Instant::now());
            tokio::time::sleep(PACE).await;
        }
        controller.passed().until_patched(names, 2).await;
        let shares = names.iter().zip(became).map(|(name, became)| {
            let written = controller.passed().acknowledged(name);
            let late = written[1].saturating_duration_since(became).saturating_sub(allowance);
            late.as_secs_f64() / became.duration_since(written[0]).as_secs_f64()
        });
        shares.fold(0.0, f64::max)
    }
}

/// The median duration of 50 bare `PATCH` requests through the controller's proxy, in milliseconds.
async fn bare_patch(controller: &Watched, name: &str) -> f64 {
    let client = cluster::client(&controller.proxy.kubeconfig()).await;
    let mut times = Vec::new();
    for number in 0..50 {
        let body = serde_json::json!({ "metadata": { "annotations": { "bench": number.to_string() } } });
        let begun = Instant::now();
        cluster::patch(&client, name, &body).await;
        times.push(milliseconds(begun.elapsed()));
    }
    median(times)
}
