//! The world of bases: machines that announce themselves and run modules. The replicas share them: who holds the Lease of a node acts for its
//! base.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use staffetta_driver::ContainerKey;
use staffetta_driver::tunnel::OperationResponseResult;
use tokio::time::{Instant, sleep};

use crate::choices::Draw;
use crate::link::LEADER_LEASE;
use crate::replica::Options;
use crate::storm::{self, Scene};
use crate::views::PodView;
use crate::world::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const BASES: usize = 4;
/// The time in which a base loads a module.
const LOADING: Duration = Duration::from_secs(4);

/// An operation on a pod, or on the base of its node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Create,
    Delete,
    ForceDelete,
    /// The base ends, and starts again after this time without modules.
    RestartBase(Duration),
    DeleteLease,
    DeleteNode,
}

/// Runs the world of one seed, without the steps whose numbers are in `without`. Returns the number of steps.
pub(crate) async fn run(world: &Arc<World>, without: &[usize]) -> usize {
    let mut draw = world.choices.at("plan");
    let replicas = 1 + draw.below(3);
    let options = Options { handlers: "[\"vnode\"]", pool: false, groups: "memory" };
    let create = |_: &mut Draw| vec![Happening::Create];
    let steps = storm::steps(world, replicas, create, |draw| {
        Some(match draw.below(30) {
            0..5 => Happening::Create,
            5..9 => Happening::Delete,
            9 => Happening::ForceDelete,
            10..13 => Happening::RestartBase(storm::some_time(draw) * 2),
            13..16 => Happening::DeleteLease,
            16 => Happening::DeleteNode,
            _ => return None,
        })
    });
    storm::run(world, &Modules::default(), replicas, options, &steps, without).await;
    steps.len()
}

/// All bases.
#[derive(Default)]
pub(crate) struct Bases {
    bases: Mutex<BTreeMap<String, Base>>,
    /// The modules that were loaded when their pods were gone, since the watch of the replica lagged.
    late: Mutex<BTreeSet<ContainerKey>>,
}

/// A base.
#[derive(Default)]
pub(crate) struct Base {
    /// `true` while it does not run.
    down: bool,
    pub(crate) modules: BTreeMap<ContainerKey, Module>,
}

/// A module of a base.
pub(crate) struct Module {
    /// The process that had it loaded.
    loader: String,
    pub(crate) loaded: Instant,
    /// `true` if somebody has asked for the modules of the base since then.
    pub(crate) asked: bool,
}

impl Bases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Base>> {
        self.bases.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, BTreeSet<ContainerKey>> {
        self.late.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Calls `work` with a base, if it runs.
    pub(crate) fn at<T>(&self, base: &str, work: impl FnOnce(&mut Base) -> T) -> Option<T> {
        let mut bases = self.lock();
        Some(bases.entry(base.to_owned()).or_default()).filter(|base| !base.down).map(work)
    }
}

/// Returns the name of the node of the base with this number.
fn node(number: usize) -> String {
    format!("vnode.base-{}.dev", number % BASES)
}

impl World {
    /// Returns the name of the Lease that a replica must hold to change the object at `path`; `None` if it needs none.
    pub(crate) fn lease_of(&self, path: &str) -> Option<String> {
        let parts: Vec<_> = path.split('/').collect();
        let is_vnode = |name: &str| name.starts_with("vnode.");
        match parts[..] {
            [.., "leases" | "events"] | [.., "leases" | "events", _] => None,
            [.., "nodes", name] | [.., "nodes", name, "status"] if is_vnode(name) => Some(name.to_owned()),
            [.., "pods", name] | [.., "pods", name, "status"] => {
                self.node_of(name).filter(|node| is_vnode(node)).or(Some(LEADER_LEASE.to_owned()))
            }
            [.., "nodes"] => None,
            _ => Some(LEADER_LEASE.to_owned()),
        }
    }

    /// Executes the request of `who` to load a module.
    pub(crate) fn load(&self, who: &str, base: &str, key: &ContainerKey) -> Option<OperationResponseResult> {
        self.note(who, &format!("{base} loads {key}"));
        let before = self.bases.at(base, |base| {
            let before = base.modules.get(key).map(|module| (module.loader.clone(), module.asked));
            let loaded = Instant::now() + LOADING;
            let module = Module { loader: who.to_owned(), loaded, asked: false };
            base.modules.entry(key.clone()).or_insert(module);
            before
        })?;
        if !self.pods().into_values().any(|pod| pod.container == key.as_str()) {
            self.bases.late().insert(key.clone());
        }
        match before {
            None => Some(OperationResponseResult::Success),
            Some((loader, asked)) => {
                if loader == who && !asked {
                    self.violated(&format!(
                        "{who} has {key} loaded again at {base}, and has not asked for it"
                    ));
                }
                Some(OperationResponseResult::Fail)
            }
        }
    }

    /// Executes the request of `who` to unload a module.
    pub(crate) fn unload(
        &self,
        who: &str,
        base: &str,
        key: &ContainerKey,
    ) -> Option<OperationResponseResult> {
        self.note(who, &format!("{base} unloads {key}"));
        let removed = self.bases.at(base, |base| base.modules.remove(key))?;
        let needed = |pod: &PodView| pod.container == key.to_string() && !pod.deleting;
        if let Some(pod) = self.pods().into_values().find(needed).filter(|_| removed.is_some()) {
            self.violated(&format!("{who} unloads {key} of the living pod {}", pod.name));
        }
        Some(OperationResponseResult::Success)
    }
}

/// The modules of all pods.
#[derive(Default)]
struct Modules {
    /// Those of pods that were deleted without a grace period: nothing tells a later replica that they are ours.
    abandoned: Mutex<BTreeSet<String>>,
}

impl Modules {
    fn abandoned(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.abandoned.lock().expect("nothing panics with it")
    }
}

impl Scene for Modules {
    type Happening = Happening;

    async fn happen(&self, world: &Arc<World>, object: usize, what: Happening) {
        let (name, node) = (format!("p{object}"), node(object));
        let path = format!("{PODS}/{name}");
        let tenant =
            async |method, path: &str, body: Value| world.request("tenant", method, path, &body).await;
        match what {
            Happening::Create => {
                // Each pod has a module of its own.
                let module = format!("m{object}-{}", world.elapsed().as_millis());
                let labels = json!({ "virtual-kubelet.koupleless.io/component": "module" });
                let spec = json!({ "nodeName": node, "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": module, "image": "i" }] });
                tenant(
                    Method::POST,
                    PODS,
                    json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }),
                )
                .await;
            }
            Happening::Delete => {
                tenant(Method::DELETE, &path, Value::Null).await;
            }
            Happening::ForceDelete => {
                let pods = world.pods().into_values().filter(|pod| pod.name == name);
                self.abandoned().extend(pods.map(|pod| pod.container));
                tenant(Method::DELETE, &path, json!({ "gracePeriodSeconds": 0 })).await;
            }
            Happening::RestartBase(time) => {
                let (world, base) = (Arc::clone(world), format!("base-{}", object % BASES));
                if world.bases.at(&base, |base| *base = Base { down: true, ..Base::default() }).is_some() {
                    tokio::spawn(async move {
                        sleep(time).await;
                        world.note("world", &format!("{base} starts again"));
                        world.bases.lock().insert(base, Base::default());
                    });
                }
            }
            Happening::DeleteLease => {
                let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
                tenant(Method::DELETE, &lease, Value::Null).await;
            }
            Happening::DeleteNode => {
                tenant(Method::DELETE, &format!("/api/v1/nodes/{node}"), Value::Null).await;
            }
        }
    }

    async fn follow_events(&self, _: &Arc<World>) {}

    fn unsettled(&self, world: &World) -> Option<String> {
        let pods = world.pods();
        let bases = world.bases.lock();
        let has = |pod: &PodView| {
            let modules = bases.values().flat_map(|base| base.modules.keys());
            modules.filter(|key| key.as_str() == pod.container).count()
        };
        for pod in pods.values() {
            let name = &pod.name;
            if pod.deleting {
                return Some(format!("the pod {name} is still being deleted"));
            }
            if !pod.ready || has(pod) != 1 {
                return Some(format!(
                    "the pod {name} is ready: {}, its module is at {} bases",
                    pod.ready,
                    has(pod)
                ));
            }
        }
        let is_known = |key: &ContainerKey| {
            pods.values().any(|pod| pod.container == key.as_str())
                || self.abandoned().contains(key.as_str())
                || world.bases.late().contains(key)
        };
        let left = bases.values().flat_map(|base| base.modules.keys()).find(|key| !is_known(key));
        left.map(|key| format!("the module {key} belongs to no pod"))
    }
}
