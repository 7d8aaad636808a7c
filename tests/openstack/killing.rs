//! Controllers that are killed repeatedly while pods are created and deleted. In the end, Neutron's own lists show whether a
//! resource leaked or was created twice.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use staffetta_real_openstack::{Match, Service};
use tokio::sync::Mutex;

use crate::nested::Nodes;
use crate::process::Process;
use crate::world::World;

/// The total number of pods, and the number at a time.
const PODS: usize = 300;
const ALIVE: usize = 40;

/// The minimum number of killed controllers, and the maximum number of calls before each kill.
const KILLS: usize = 12;
const CALLS: u64 = 60;

/// The maximum lifetime of a controller with fewer calls.
const LONGEST: Duration = Duration::from_secs(15);

/// The time limit of the end: this Neutron needs a tenth of a second per port.
const PATIENCE: Duration = Duration::from_secs(180);

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The most that a pool keeps.
const POOL_MAX: usize = 20;

/// Each of these tests gives Neutron all that it can do. One at a time, so that the others have their calls answered.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

/// The node of the pods: one with ports of its own, or a virtual machine with a trunk.
enum Place {
    Bound(World),
    Nested(Nodes),
}

impl Place {
    fn world(&self) -> &World {
        match self {
            Self::Bound(world) => world,
            Self::Nested(nodes) => &nodes.world,
        }
    }

    fn options(&self, more: &str) -> String {
        match self {
            Self::Bound(world) => world.options(more),
            Self::Nested(nodes) => nodes.world.options(&nodes.options_with(more)),
        }
    }

    /// The node, and the address of which the status of its pods tells.
    fn node(&self) -> (String, Option<String>) {
        match self {
            Self::Bound(world) => (world.node.clone(), None),
            Self::Nested(nodes) => {
                let (node, trunk) = nodes.node(0);
                (node, Some(trunk.address.to_string()))
            }
        }
    }

    /// Waits until what hangs on the trunk of the node is just what Neutron has of ports: a pool may be about to make some, or
    /// to destroy some. At no time do two of them have one VLAN.
    async fn until_attached(&self) {
        let Self::Nested(nodes) = self else { return };
        let attached = async || {
            let subports = nodes.subports(0).await;
            let vlans: BTreeSet<_> = subports.iter().map(|(vlan, _)| vlan).collect();
            assert_eq!(vlans.len(), subports.len(), "{subports:?}");
            let ports: BTreeSet<_> = self.world().ports().await.into_iter().map(|port| port.id).collect();
            subports.into_iter().map(|(_, port)| port).collect::<BTreeSet<_>>() == ports
        };
        until(attached, "what hangs on the trunk is what Neutron has of ports").await;
    }
}

/// Kills controllers while pods come and go, and looks in the end what that left.
async fn killed(place: impl AsyncFnOnce() -> Place, options: &str, pooled: bool) {
    let _exclusive = EXCLUSIVE.lock().await;
    let place = place().await;
    let (world, options) = (place.world(), place.options(options));
    let churn = Churn::start(world.pods(), place.node());
    let mut kills = 0;
    while kills < KILLS || !churn.is_over() {
        let controller = start(world, &options).await;
        until_some_calls(world, CALLS).await;
        kill(world, controller).await;
        kills += 1;
        assert_nobody_has_two(world, pooled).await;
    }
    churn.stop().await;
    let mut last = start(world, &options).await;
    until_idle(world, pooled).await;
    assert_nobody_has_two(world, pooled).await;
    place.until_attached().await;
    if !pooled {
        assert_made_once(world).await;
    }
    end_all(world).await;
    let most = if pooled { POOL_MAX } else { 0 };
    until(async || world.ports().await.len() <= most, "what nobody needs is gone").await;
    place.until_attached().await;
    assert!(last.terminate().await.success());
    place.until_attached().await;
}

pub(crate) async fn start(world: &World, options: &str) -> Process {
    let kubeconfig = std::fs::read_to_string(world.kubeconfig()).unwrap();
    Process::start(Path::new(PROGRAM), world.folder(), options, &kubeconfig).await
}

/// Kills a controller, and waits until the services have done what it asked of them, as they have before a lease lets another
/// one begin. What they do later still is another test's.
pub(crate) async fn kill(world: &World, mut controller: Process) {
    controller.kill("KILL").await;
    assert!(!controller.ends().await.success());
    // Looked at twice: a call may have been on its way to the gate.
    let mut looks = 0;
    let done = async || {
        looks = if world.gate.under_way() == 0 { looks + 1 } else { 0 };
        looks == 2
    };
    until(done, "what it asked for is done").await;
}

/// Waits until the controller has made some more calls, fewer than `most`; how many, nobody knows before. One that is killed on a
/// slow machine has come as far by then as on a fast one. Where there is not much to do, `LONGEST` ends the wait.
pub(crate) async fn until_some_calls(world: &World, most: u64) {
    let made = || world.gate.count(&Match::any());
    let enough = made() + usize::try_from(below(most)).unwrap();
    let deadline = tokio::time::Instant::now() + LONGEST;
    while made() < enough && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// At no time do two pods show one port, or are two ports made for one pod.
async fn assert_nobody_has_two(world: &World, pooled: bool) {
    world.named().await;
    if pooled {
        return;
    }
    let mut ports = BTreeMap::<_, Vec<_>>::new();
    for port in world.ports().await {
        let uid = port.description.split(' ').find_map(|word| word.strip_prefix("uid=")).map(str::to_owned);
        ports.entry(uid).or_default().push(port.id);
    }
    assert!(!ports.contains_key(&None), "ports without an owner: {ports:?}");
    ports.retain(|_, ids| ids.len() > 1);
    assert!(ports.is_empty(), "two ports of one pod: {ports:?}");
}

/// Waits until each pod shows an active port that Neutron has, and Neutron has no more than the pool may keep.
async fn until_idle(world: &World, pooled: bool) {
    let settled = async || {
        let pods = world.pods().list(&ListParams::default()).await.unwrap().items.len();
        let ports: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
        let named = world.named().await;
        let spare = if pooled { POOL_MAX } else { 0 };
        named.len() == pods && named.is_subset(&ports) && ports.len() <= pods + spare
    };
    until(settled, "each pod has its port, and no port is without a pod").await;
}

/// Neutron has made no more ports than there were pods.
async fn assert_made_once(world: &World) {
    let calls = world.stack.calls(Service::Neutron).await.of_controller(&world.tenant.id);
    let made = calls.made(|call| call.method == "POST" && call.path == "/v2.0/ports" && call.status == "201");
    assert!(made <= PODS, "{made} ports were made for {PODS} pods");
    assert!(made > ALIVE, "{made} ports were made, and controllers were killed in vain");
}

/// Ends all pods.
async fn end_all(world: &World) {
    for pod in world.pods().list_metadata(&ListParams::default()).await.unwrap() {
        world.end_pod(&pod.metadata.name.unwrap()).await;
    }
    until(async || world.pods().list(&ListParams::default()).await.unwrap().items.is_empty(), "all pods go")
        .await;
}

async fn until(mut condition: impl AsyncFnMut() -> bool, what: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Pods that come and go.
struct Churn {
    made: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Churn {
    fn start(pods: Api<Pod>, (node, address): (String, Option<String>)) -> Self {
        let made = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&made);
        let task = tokio::spawn(async move {
            let mut alive = Vec::new();
            for number in 0..PODS {
                if alive.len() == ALIVE {
                    let place = usize::try_from(below(ALIVE as u64)).unwrap();
                    let name: String = alive.swap_remove(place);
                    let ended = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    assert!(ended.is_ok(), "{name}: {ended:?}");
                }
                let name = format!("pod-{number}");
                create(&pods, &node, address.as_deref(), &name).await;
                alive.push(name);
                counted.store(number + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await; // the speed of the churn
            }
        });
        Self { made, task }
    }

    fn is_over(&self) -> bool {
        self.made.load(Ordering::Relaxed) == PODS || self.task.is_finished()
    }

    async fn stop(self) {
        self.task.await.unwrap();
    }
}

async fn create(pods: &Api<Pod>, node: &str, address: Option<&str>, name: &str) {
    let pod = json!({ "metadata": { "name": name },
        "spec": { "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    if let Some(address) = address {
        let status = json!({ "status": { "hostIP": address, "hostIPs": [{ "ip": address }] } });
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

/// A number by chance; a run is never the same as another.
pub(crate) fn below(limit: u64) -> u64 {
    RandomState::new().build_hasher().finish() % limit
}

/// The options of a pool that keeps few.
fn pool(driver: &str) -> String {
    format!(
        "[kubernetes]\nvif_pool_driver = {driver:?}\n[vif_pool]\nports_pool_min = 5\nports_pool_batch = 10\n\
         ports_pool_max = {POOL_MAX}\nports_pool_update_frequency = \"1s\"\n"
    )
}

async fn bound() -> Place {
    Place::Bound(World::start().await)
}

async fn nested() -> Place {
    Place::Nested(Nodes::start("nested-vlan", 1).await)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn however_often_it_is_killed_nothing_leaks_and_nothing_is_made_twice_on_a_real_openstack() {
    killed(bound, "", false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn however_often_it_is_killed_no_subport_leaks_and_none_is_made_twice_on_a_real_openstack() {
    killed(nested, "", false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn however_often_it_is_killed_a_pool_loses_no_port_and_shares_none_on_a_real_openstack() {
    killed(bound, &pool("neutron"), true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn however_often_it_is_killed_a_pool_loses_no_subport_and_shares_none_on_a_real_openstack() {
    killed(nested, &pool("nested"), true).await;
}
