//! Laws of the handler on the simulated EC2, for any order of crashes, lost annotations, lost answers and incomplete reads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Action, HandlerError};
use staffetta_memory::{Fault, MemoryPrefixes, PrefixMethod, ReadCut};
use staffetta_prefix_ip::address::{PRIVATE_IPV4_ADDRESS, parse};
use staffetta_prefix_ip::source::{AddressReady, NodeRefresh};
use tokio::time::{Instant, sleep};

use crate::evidence::{on, renamed, running};
use crate::world::*;

const NODES: [&str; 2] = ["win", "renamed"];
const COOL_DOWN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Act {
    Create {
        renamed: bool,
    },
    /// The kubelet starts a pod with the address in its annotation.
    Start(usize),
    End(usize),
    Pass(u64),
    /// Somebody removes the annotation of a pod, or writes nonsense into it.
    Lose {
        pod: usize,
        nonsense: bool,
    },
    /// The process is killed and starts again. The annotations of so many started pods are lost meanwhile.
    Crash {
        lost: usize,
    },
    /// The next call of a method fails or is not answered.
    Fault {
        method: PrefixMethod,
        fault: usize,
    },
    Cut(ReadCut),
}

fn acts(faults: bool) -> impl Strategy<Value = Vec<Act>> {
    let method =
        prop::sample::select(vec![PrefixMethod::Assign, PrefixMethod::Unassign, PrefixMethod::Interfaces]);
    let cut = prop_oneof![Just(ReadCut::Machines), (0..3_usize).prop_map(ReadCut::Blocks)];
    let weight = u32::from(faults);
    let act = prop_oneof![
        8 => any::<bool>().prop_map(|renamed| Act::Create { renamed }),
        6 => (0..40_usize).prop_map(Act::Start),
        5 => (0..40_usize).prop_map(Act::End),
        3 => (0..60_u64).prop_map(Act::Pass),
        1 => Just(Act::Pass(310)),
        2 => (0..4_usize).prop_map(|lost| Act::Crash { lost }),
        3 * weight => (0..40_usize, any::<bool>()).prop_map(|(pod, nonsense)| Act::Lose { pod, nonsense }),
        4 * weight => (method, 0..4_usize).prop_map(|(method, fault)| Act::Fault { method, fault }),
        2 * weight => cut.prop_map(Act::Cut),
    ];
    prop::collection::vec(act, 1..80)
}

/// A pod as the API server has it.
struct ModelPod {
    node: &'static str,
    annotation: String,
    /// The address that the handler gave the pod.
    given: Option<Ipv4Addr>,
    started: bool,
}

impl ModelPod {
    fn pod(&self, name: &str) -> Pod {
        let pod = match self.given.filter(|_| self.started) {
            Some(address) => running(name, &self.annotation, &address.to_string()),
            None => pod(name, "Pending", &self.annotation),
        };
        on(self.node, pod)
    }
}

struct Cluster {
    cloud: Arc<MemoryPrefixes>,
    world: World,
    pods: BTreeMap<String, ModelPod>,
    created: usize,
    /// The times at which addresses were returned.
    returned: Vec<Instant>,
    /// The most prefixes that were needed so far.
    needed: usize,
    /// The number of reads after which another one may be cut: two incomplete reads in a row are as good as a loss.
    next_cut: usize,
}

impl Cluster {
    async fn new() -> Self {
        let cloud = Arc::new(MemoryPrefixes::default());
        cloud.add_subnet(&"subnet-1".into(), "10.0.0.0/23".parse().unwrap());
        cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 10, true);
        let world = World::new(&cloud, prefixes()).await;
        let mut cluster = Self {
            cloud,
            world,
            pods: BTreeMap::new(),
            created: 0,
            returned: Vec::new(),
            needed: 1,
            next_cut: 0,
        };
        cluster.run_until_idle().await;
        cluster
    }

    fn name(&self, number: usize) -> Option<String> {
        self.pods.keys().nth(number % self.pods.len().max(1)).cloned()
    }

    fn permitted(result: Result<Action, HandlerError>) {
        let reason = result.map_err(|error| error.reason()).err();
        assert_ne!(reason, Some("ForeignAddress"), "a healthy pod is reported");
    }

    async fn show(&self, name: &str) {
        let pod = self.pods[name].pod(name);
        Self::permitted(self.world.feed.modified(pod).await);
    }

    /// Lets the handler see what changed, until nothing does.
    async fn run_until_idle(&mut self) {
        for node in NODES {
            Self::permitted(self.world.feed.modified(renamed(node)).await);
        }
        sleep(Duration::from_secs(1)).await;
        for _ in 0..3 {
            let sent = std::mem::take(&mut *self.world.sent.lock().unwrap());
            let key = format!("/metadata/annotations/{}", PRIVATE_IPV4_ADDRESS.replace('/', "~1"));
            for (path, body) in sent {
                let name = path.rsplit('/').next().unwrap().to_owned();
                let Some(value) = body.pointer(&key).and_then(|value| value.as_str()) else { continue };
                let pod = self.pods.get_mut(&name).unwrap();
                let address = parse(value);
                assert!(pod.given.is_none() || pod.given == address, "{name} keeps {:?}: {value}", pod.given);
                (pod.annotation, pod.given) = (value.to_owned(), address);
                self.show(&name).await;
            }
            let triggered = std::mem::take(&mut *self.world.triggered.lock().unwrap());
            for name in triggered {
                let result = match self.pods.get(&name) {
                    Some(pod) => self.world.feed.trigger(AddressReady::of(&pod.pod(&name))).await,
                    None if name.starts_with("pod") => Ok(Action::done()),
                    None => self.world.feed.trigger(NodeRefresh::of(&renamed(&name))).await,
                };
                Self::permitted(result);
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.check();
    }

    fn check(&mut self) {
        let given: Vec<_> = self.pods.values().filter_map(|pod| pod.given).collect();
        assert_eq!(
            given.iter().collect::<BTreeSet<_>>().len(),
            given.len(),
            "two living pods on one address"
        );
        let blocks = self.cloud.blocks();
        for address in &given {
            assert!(
                blocks.iter().any(|block| block.contains(address)),
                "the prefix of {address} was removed"
            );
        }
        for note in self.world.notes.lock().unwrap().iter() {
            let reports = ["AddressForeign", "AddressShared", "AddressLost", "ForeignAddress"];
            assert!(!reports.iter().any(|reason| note.contains(reason)), "a healthy pod is reported: {note}");
        }
        self.returned.retain(|returned| returned.elapsed() < COOL_DOWN);
        self.needed = self.needed.max((self.pods.len() + self.returned.len() + 1).div_ceil(16));
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Create { renamed } => {
                let name = format!("pod-{:03}", self.created);
                self.created += 1;
                let node = NODES[usize::from(renamed)];
                let pod = ModelPod { node, annotation: String::new(), given: None, started: false };
                self.pods.insert(name.clone(), pod);
                self.needed = self.needed.max((self.pods.len() + self.returned.len() + 1).div_ceil(16));
                let pod = self.pods[&name].pod(&name);
                Self::permitted(self.world.feed.added(pod).await);
            }
            Act::Start(number) => {
                let Some(name) = self.name(number) else { return };
                let pod = self.pods.get_mut(&name).unwrap();
                pod.started |= pod.given.is_some() && parse(&pod.annotation) == pod.given;
                self.show(&name).await;
            }
            Act::End(number) => {
                let Some(name) = self.name(number) else { return };
                let pod = self.pods.remove(&name).unwrap();
                if pod.given.is_some() {
                    self.returned.push(Instant::now());
                }
                self.world.feed.deleted(pod.pod(&name)).await.unwrap();
            }
            Act::Pass(seconds) => sleep(Duration::from_secs(seconds)).await,
            Act::Lose { pod, nonsense } => {
                let Some(name) = self.name(pod) else { return };
                let known =
                    self.world.table.address_of(self.pods[&name].node, &name.as_str().into()).is_some();
                let pod = self.pods.get_mut(&name).unwrap();
                // If the process is killed before it has repaired the annotation of a pod without a status, nobody knows its address.
                if known || pod.started {
                    pod.annotation = String::from(if nonsense { "nonsense" } else { "" });
                    self.show(&name).await;
                }
            }
            Act::Crash { lost } => {
                self.world.work.abort();
                let started = self.pods.values_mut().filter(|pod| pod.started).take(lost);
                started.for_each(|pod| pod.annotation.clear());
                self.world = World::new(&self.cloud, prefixes()).await;
                let (mut first, mut second) = (Vec::new(), Vec::new());
                for (number, name) in self.pods.keys().enumerate() {
                    if number % 2 == 0 { first.push(name) } else { second.push(name) }
                }
                // The indexes are complete before the first node is handled.
                for name in first.into_iter().chain(second) {
                    Self::permitted(self.world.feed.added(self.pods[name].pod(name)).await);
                }
            }
            Act::Fault { method, fault } => {
                let error = |reason| DriverError::new(reason, "call");
                let fault = match fault {
                    0 => Fault::Fail(error(Reason::Refused)),
                    1 => Fault::DoneThenFail(error(Reason::Unavailable)),
                    2 if method != PrefixMethod::Interfaces => Fault::DoneThenHang,
                    _ => Fault::Fail(error(Reason::NoAddress)),
                };
                self.cloud.faults().inject(method, 1, fault);
            }
            Act::Cut(cut) => {
                let reads = self.cloud.calls().interfaces;
                if reads >= self.next_cut && self.cloud.faults().planned() == 0 {
                    self.next_cut = reads + 5;
                    self.cloud.cut_next_read(cut);
                }
            }
        }
        self.run_until_idle().await;
    }

    /// Ends all pods except for `left`, and lets all surplus be removed.
    async fn end(&mut self, left: usize) {
        self.cloud.faults().clear();
        self.act(Act::Crash { lost: 0 }).await;
        self.cloud.faults().clear();
        while self.pods.len() > left {
            self.act(Act::End(0)).await;
        }
        for _ in 0..6 {
            self.act(Act::Pass(310)).await;
        }
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_a_living_pod_uses_stays_its_own_and_no_healthy_pod_is_reported(acts in acts(true)) {
        run(async {
            let mut cluster = Cluster::new().await;
            for act in acts {
                cluster.act(act).await;
            }
            cluster.end(3).await;
            assert!(cluster.pods.values().all(|pod| pod.given == parse(&pod.annotation)));
            let used: BTreeSet<_> = cluster.pods.values().filter_map(|pod| pod.given).collect();
            let blocks = cluster.cloud.blocks();
            let needed = blocks.iter().filter(|block| used.iter().any(|address| block.contains(address))).count();
            assert_eq!(blocks.len(), needed.max(1), "all surplus is removed");
            assert_eq!(used.len(), cluster.pods.len(), "all pods are served");
        });
    }

    #[test]
    fn restarts_need_one_prefix_more_at_most_and_none_in_the_end(acts in acts(false)) {
        run(async {
            let mut cluster = Cluster::new().await;
            for act in acts {
                cluster.act(act).await;
                let blocks = cluster.cloud.blocks().len();
                assert!(blocks <= cluster.needed + 1, "{blocks} prefixes, {} needed", cluster.needed);
            }
            cluster.end(0).await;
            assert_eq!(cluster.cloud.blocks().len(), 1);
        });
    }
}
