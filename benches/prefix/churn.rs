//! Pods come and go on many nodes, in simulated time and without an API server.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use staffetta_driver::prefix::PrefixProvider;
use staffetta_driver::{InstanceId, Uid};
use staffetta_handler::HandlerError;
use staffetta_memory::{MemoryPrefixes, PrefixCalls};
use staffetta_pool::Wait;
use staffetta_prefix_ip::nodes::NodeTable;
use staffetta_prefix_ip::published::PublishedAddresses;
use staffetta_prefix_ip::settings::Settings;
use staffetta_prefix_ip::worker::Worker;
use tokio::time::sleep;

use crate::report::{Row, number};

const PODS: usize = 30;
const COOL_DOWN: u64 = 30;
/// The life of a pod in seconds.
const LIFE: std::ops::Range<u64> = 60..600;
/// The number of seconds for which a plan may keep what the pool held.
const KEEPS: usize = 60;

/// A node, and what it needed and had in each second.
struct BenchNode {
    name: String,
    instance: InstanceId,
    /// The pods with the second in which each ends; without an address while one waits.
    pods: Vec<(Uid, u64, Option<Ipv4Addr>)>,
    /// The addresses that were returned, with the second.
    cooling: VecDeque<(Ipv4Addr, u64)>,
    /// The prefixes that were needed and those on the interface, in each second.
    history: Vec<(usize, usize)>,
}

/// Numbers that look random, the same ones in each run.
struct Dice(u64);

impl Dice {
    fn life(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        LIFE.start + self.0 % (LIFE.end - LIFE.start)
    }
}

/// The annotations of a cluster in which no pod has any.
struct NoAnnotations;

#[async_trait]
impl PublishedAddresses for NoAnnotations {
    async fn published_addresses(&self) -> Result<BTreeSet<Ipv4Addr>, HandlerError> {
        Ok(BTreeSet::new())
    }
}

pub(crate) async fn measure() -> Vec<Row> {
    let (nodes, seconds) =
        (number("STAFFETTA_BENCH_NODES", 1000), number("STAFFETTA_BENCH_SECONDS", 1800) as u64);
    let cloud = Arc::new(MemoryPrefixes::default());
    cloud.add_subnet(&"subnet".into(), "10.0.0.0/10".parse().expect("it is a subnet"));
    let table = Arc::new(NodeTable::new(Duration::from_secs(COOL_DOWN)));
    let worker = Worker {
        provider: Arc::clone(&cloud) as _,
        nodes: Arc::clone(&table),
        published: Arc::new(NoAnnotations),
        resync_interval: Duration::from_secs(86_400),
        report: Box::new(|node, report| panic!("{node}: {report:?}")),
    };
    tokio::spawn(async move { worker.run().await });
    let mut nodes = add_nodes(&cloud, &table, nodes).await;
    let ids: Vec<_> = nodes.iter().map(|node| node.instance.clone()).collect();

    let (mut dice, mut created, mut waits, mut refusals, mut owners) = (Dice(7), 0, 0, 0, HashMap::new());
    for second in 0..seconds {
        for node in &mut nodes {
            node.end_pods(second, &table, &mut owners);
            while node.pods.len() < PODS {
                created += 1;
                // The first pods do not all end together.
                let life = if second == 0 { 1 + dice.life() % LIFE.end } else { dice.life() };
                node.pods.push((Uid::from(format!("pod-{created}")), second + life, None));
            }
            for wait in node.take_addresses(second, &table, &mut owners) {
                waits += 1;
                refusals += usize::from(wait != Wait::Growing);
            }
        }
        sleep(Duration::from_secs(1)).await;
        let interfaces = cloud.interfaces(&ids).await.expect("nothing fails");
        for node in &mut nodes {
            let taken = node.pods.len() + node.cooling.len();
            node.history.push(((taken + 1).div_ceil(16), interfaces[&node.instance].blocks.len()));
        }
    }
    let PrefixCalls { assign, unassign, .. } = cloud.calls();
    let (calls, least) = (assign + unassign, nodes.iter().map(|node| fewest(&node.history)).sum::<usize>());
    let ratio = calls as f64 / least as f64;
    let handed_out = created - waits.min(created);
    vec![
        Row::new("pods that were given an address", "1", f64::from(created)),
        Row::new("addresses with two pods, or before their cool-down", "1", 0.0).goal("0", true),
        Row::new("requests that waited for a call of the provider", "1", f64::from(waits)),
        Row::new("requests refused although the provider grants", "1", refusals as f64)
            .goal("0", refusals == 0),
        Row::new("calls of the provider", "1", calls as f64)
            .against(least as f64)
            .goal("at most 1.1 of the least possible", ratio <= 1.1),
        Row::new("addresses given without a call", "ratio", f64::from(handed_out) / f64::from(created)),
    ]
}

async fn add_nodes(cloud: &MemoryPrefixes, table: &NodeTable, count: usize) -> Vec<BenchNode> {
    let options = ["enable-windows-ipam", "enable-windows-prefix-delegation"];
    let options = options.map(|name| (name.to_owned(), "true".to_owned())).into();
    let (settings, _) = Settings::read(&options, None);
    let mut nodes = Vec::new();
    for number in 0..count {
        let (name, instance) = (format!("node-{number}"), InstanceId::from(format!("i-{number}")));
        cloud.add_machine(&instance, &"subnet".into(), 10, true);
        let read = cloud.interfaces(std::slice::from_ref(&instance)).await.expect("nothing fails");
        table.add(&name, &instance, &read[&instance], || settings, Vec::new);
        let (pods, cooling, history) = (Vec::new(), VecDeque::new(), Vec::new());
        nodes.push(BenchNode { name, instance, pods, cooling, history });
    }
    nodes
}

impl BenchNode {
    fn end_pods(&mut self, second: u64, table: &NodeTable, owners: &mut HashMap<Ipv4Addr, Uid>) {
        while self.cooling.front().is_some_and(|(_, since)| since + COOL_DOWN <= second) {
            self.cooling.pop_front();
        }
        for (uid, _, address) in self.pods.extract_if(.., |(_, end, _)| *end <= second) {
            table.give_back(&self.name, &uid);
            if let Some(address) = address {
                owners.remove(&address);
                self.cooling.push_back((address, second));
            }
        }
    }

    /// Takes an address for each pod that has none, and returns the reasons why some got none.
    fn take_addresses(
        &mut self,
        second: u64,
        table: &NodeTable,
        owners: &mut HashMap<Ipv4Addr, Uid>,
    ) -> Vec<Wait> {
        let mut waits = Vec::new();
        for (uid, _, address) in self.pods.iter_mut().filter(|(_, _, address)| address.is_none()) {
            match table.take(&self.name, uid).expect("the node is known") {
                Ok(taken) => {
                    let other = owners.insert(taken.address, uid.clone());
                    assert_eq!(other, None, "{} was given to two pods in second {second}", taken.address);
                    let cools = self.cooling.iter().any(|(cooling, _)| *cooling == taken.address);
                    assert!(!cools, "{} was given before its cool-down ended", taken.address);
                    *address = Some(taken.address);
                }
                Err(wait) => waits.push(wait),
            }
        }
        waits
    }
}

/// Returns the least number of changes of any plan that always has the prefixes that are needed, and never more than the pool had
/// within the last minute. Such a plan changes only when no number of prefixes is permitted any longer.
fn fewest(history: &[(usize, usize)]) -> usize {
    let (mut changes, mut low, mut high) = (0, usize::MAX, 0);
    for (second, (need, held)) in history.iter().enumerate() {
        let before = &history[second.saturating_sub(KEEPS)..=second];
        let most = before.iter().map(|(_, held)| *held).max().unwrap_or(*held).max(*need);
        if changes > 0 && low.max(*need) <= high.min(most) {
            (low, high) = (low.max(*need), high.min(most));
        } else {
            (changes, low, high) = (changes + 1, *need, most);
        }
    }
    changes
}
