//! `cargo bench --bench neutron`: pods get their ports from a real Neutron, in the eyes of a real API server.
//!
//! Pods that a filled pool wires in a second against ports that are made one by one; pods without a pool against the better
//! of bare concurrent and bare bulk creation; what one pod waits for when the pool is warm; how late it is seen that a port
//! became ACTIVE; and what all of it costs, counted by the servers.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod cloud;
mod cluster;
mod report;
mod spy;

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use staffetta_apiserver::testing::RealServer;
use staffetta_real_openstack::{Gate, Match, RealOpenStack, Service};

use cloud::{Place, Watched, bare, bulk};
use report::{Row, median, tell};

/// How many calls are in flight on their side, and on ours by default (`neutron.max_concurrency`).
const IN_FLIGHT: usize = 16;

/// A pool of this size at least.
const POOL: usize = 300;

/// So many ports are made at a time.
const BATCH: usize = 100;

/// How many pods come alone, how many become active after a wait of their own length, and how many are VLANs of their node.
const ALONE: usize = 30;
const LATE: usize = 12;
/// How many pods wait at a time, while their ports become active one after the other.
const CROWD: usize = 100;
const NESTED: usize = 20;

/// No pool.
const NO_POOL: &str = "pod_vif_driver = \"neutron-vif\"\nvif_pool_driver = \"noop\"";

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    tell("neutron", &runtime.block_on(run()));
}

async fn run() -> Vec<Row> {
    let stack = RealOpenStack::launch(&["--workers", "2"]).await;
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let bench = Bench { stack, client, kubeconfig: server.kubeconfig() };
    let mut rows = bench.without_pool().await;
    rows.extend(bench.with_pool().await);
    rows.extend(bench.nested().await);
    rows.extend(bench.activation().await);
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
        let count = cluster::number("STAFFETTA_BENCH_PODS", 100);
        let (mut ours, mut concurrent, mut bulks, mut ratios) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..cluster::number("STAFFETTA_BENCH_ROUNDS", 3) {
            let place = self.place(None, round).await;
            let login = place.tenant.login();
            let many = bare(&place, &login, count, IN_FLIGHT).await;
            let place = self.place(None, round).await;
            let controller = place.controller(self.kubeconfig, &place.tenant.login(), NO_POOL).await;
            let names = place.names("alone", count);
            place.create(&self.client, &names).await;
            controller.until_patched(&names, 1).await;
            let rate = controller.rate(&names);
            controller.stop().await;
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
        let options = format!(
            "pod_vif_driver = \"neutron-vif\"\nvif_pool_driver = \"neutron\"\n\
             [vif_pool]\nports_pool_min = {POOL}\nports_pool_batch = {BATCH}\nports_pool_max = 0\n"
        );
        let controller = place.controller(self.kubeconfig, &login, &options).await;
        // The first pod fills the pool, the second one lets it grow by a batch: then it is at rest for as long as pods come alone.
        let first = place.names("first", 2);
        place.create(&self.client, &first[..1]).await;
        place.until_full(40 + POOL + 1).await;
        place.create(&self.client, &first[1..]).await;
        place.until_full(40 + POOL + 1 + BATCH).await;

        let mut rows = self.one_by_one(&place, &controller, &gate, &first).await;
        let names = place.names("burst", POOL);
        place.create(&self.client, &names).await;
        controller.until_patched(&names, 1).await;
        let rate = controller.rate(&names);
        controller.until_patched(&names, 2).await;
        let writes = names.iter().map(|name| controller.spy.acknowledged(name).len()).sum::<usize>();
        let writes = writes as f64 / names.len() as f64;
        let others = controller.spy.others() as f64;
        controller.stop().await;
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
        controller.until_patched(first, 2).await;
        let names = place.names("one", ALONE);
        let patch = self.bare_patch(&first[0]).await;
        for name in &names {
            place.create(&self.client, std::slice::from_ref(name)).await;
            controller.until_patched(std::slice::from_ref(name), 2).await;
        }
        let seen = gate.seen();
        let (mut times, mut calls) = (Vec::new(), 0);
        for name in &names {
            let heard = controller.spy.heard(name).expect("it was heard of");
            let written = controller.spy.acknowledged(name)[0];
            times.push(written.duration_since(heard));
            calls += seen.iter().filter(|call| heard <= call.came && call.came <= written).count();
        }
        times.sort();
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let (half, most) = (milliseconds(times[times.len() / 2]), milliseconds(times[times.len() - 1]));
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
            "pod_vif_driver = \"nested-vlan\"\nvif_pool_driver = \"nested\"\n\
             [vif_pool]\nports_pool_min = {NESTED}\nports_pool_batch = {NESTED}\n\
             [pod_vif_nested]\nworker_nodes_subnets = [{:?}]\n",
            machine.subnet.id
        );
        let controller =
            place.controller(self.kubeconfig, &place.tenant.login_through(&gate), &options).await;
        let first = place.names("parent", 1);
        machine.create(&place, &self.client, &first).await;
        controller.until_patched(&first, 1).await;
        place.until_full(NESTED + 1).await;
        // Nobody looks any more once all of them are known to be ACTIVE.
        let mut looks = None;
        while looks != Some(gate.seen().len()) {
            looks = Some(gate.seen().len());
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        let names = place.names("vlan", NESTED);
        machine.create(&place, &self.client, &names).await;
        controller.until_patched(&names, 1).await;
        let active = cluster::versions(&self.client).await;
        let active = names.iter().filter(|name| {
            let shown = active.get(*name).and_then(|(_, _, annotation)| annotation.as_deref());
            shown.is_some_and(|text| text.contains(r#""active":true"#))
        });
        let active = active.count();
        assert_eq!(active, NESTED, "each shows an active VIF after its first write");
        let others = controller.spy.others() as f64;
        let spy = controller.spy.clone();
        controller.stop().await;
        let writes = names.iter().map(|name| spy.acknowledged(name).len()).sum::<usize>();
        let writes = writes as f64 / names.len() as f64;
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

    /// What one PATCH takes, the median of 50, in milliseconds.
    async fn bare_patch(&self, name: &str) -> f64 {
        let mut times = Vec::new();
        for number in 0..50 {
            let body = serde_json::json!({ "metadata": { "annotations": { "bench": number.to_string() } } });
            let begun = Instant::now();
            cluster::patch(&self.client, name, &body).await;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
        median(times)
    }

    /// How late it is seen that Neutron has made a port ACTIVE, after waits of many lengths.
    async fn activation(&self) -> Vec<Row> {
        let place = self.place(None, 20).await;
        let gate = self.stack.gate().await;
        let login = place.tenant.login_through(&gate);
        // Ports are found by the names of their pods.
        let options = format!("{NO_POOL}\nport_debug = true");
        let controller = place.controller(self.kubeconfig, &login, &options).await;
        let agents = self.stack.agents();
        let patch = {
            let names = place.names("zero", 1);
            place.create(&self.client, &names).await;
            controller.until_patched(&names, 1).await;
            self.bare_patch(&names[0]).await / 1000.0
        };
        let mut shares = Vec::new();
        for (number, name) in place.names("late", LATE).iter().enumerate() {
            let before = gate.seen().len();
            place.create(&self.client, std::slice::from_ref(name)).await;
            controller.until_patched(std::slice::from_ref(name), 1).await;
            let began = controller.spy.acknowledged(name)[0];
            let ports = place.ports().await;
            let port = ports.iter().find(|port| port.name.ends_with(name.as_str()) && !port.active());
            let port = port.expect("the port bears the name of its pod");
            tokio::time::sleep(Duration::from_millis(300 + 400 * number as u64)).await;
            assert!(agents.up(&port.id).await, "the port is bound");
            let became = Instant::now();
            controller.until_patched(std::slice::from_ref(name), 2).await;
            let seen = controller.spy.acknowledged(name)[1];
            let seen_by_the_gate = gate.seen();
            let polls = seen_by_the_gate[before..].iter().filter(|call| call.method == Method::GET);
            let polls = polls.filter_map(|call| Some(call.answered?.0 - call.came)).max();
            let call = polls.expect("the port was asked for").as_secs_f64() + patch;
            let late = seen.saturating_duration_since(became).as_secs_f64() - call;
            shares.push(late.max(0.0) / became.duration_since(began).as_secs_f64());
        }
        let crowd = self.crowd(&place, &controller, &gate, patch).await;
        controller.stop().await;
        let pods = [place.names("zero", 1), place.names("late", LATE), place.names("crowd", CROWD)];
        self.forget(&pods.concat()).await;
        let most = shares.iter().copied().fold(0.0, f64::max);
        vec![
            Row::new(format!("seen ACTIVE late, share of the wait, most of {LATE}"), "ratio", most)
                .goal("at most 0.25 and one call", most <= 0.25),
            Row::new(format!("the same, of {CROWD} that wait at a time"), "ratio", crowd)
                .goal("at most 0.25, one call, and the one under way", crowd <= 0.25),
        ]
    }

    /// The same while many wait at a time, so that looks are long and shared. `patch` is what one PATCH takes, in seconds.
    async fn crowd(&self, place: &Place, controller: &Watched, gate: &Gate, patch: f64) -> f64 {
        let (agents, names) = (self.stack.agents(), place.names("crowd", CROWD));
        place.create(&self.client, &names).await;
        controller.until_patched(&names, 1).await;
        let ports = place.ports().await;
        let before = gate.seen().len();
        let mut became = Vec::new();
        for name in &names {
            let port = ports.iter().find(|port| port.name.ends_with(name.as_str()));
            let port = port.expect("the port bears the name of its pod");
            assert!(agents.up(&port.id).await, "the port is bound");
            became.push(Instant::now());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        controller.until_patched(&names, 2).await;
        let polls = gate.seen();
        let polls = polls[before..].iter().filter(|call| call.method == Method::GET);
        let polls = polls.filter_map(|call| Some(call.answered?.0 - call.came)).max();
        let calls = 2.0 * polls.expect("the ports were asked for").as_secs_f64() + patch;
        let shares = names.iter().zip(became).map(|(name, became)| {
            let written = controller.spy.acknowledged(name);
            let late = written[1].saturating_duration_since(became).as_secs_f64() - calls;
            late.max(0.0) / became.duration_since(written[0]).as_secs_f64()
        });
        shares.fold(0.0, f64::max)
    }
}
