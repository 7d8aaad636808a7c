//! The world of pods: a seed decides how many replicas there are, whether a pool keeps VIFs ready, and what happens when. When the faults
//! have ended, everything must converge, and then stay at rest.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use staffetta_network::os_vif::KURYR_VIF;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::replica::{self, Command};
use crate::world::{World, pod};

/// The time in which faults happen, and the longest time until everything has converged after it.
const STORM: Duration = Duration::from_secs(300);
const CONVERGENCE: Duration = Duration::from_secs(420);
/// Two sweeps, in which nothing changes any more.
const REST: Duration = Duration::from_secs(130);
/// The names of pods, several of which are created again.
const NAMES: usize = 8;
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/staffetta";

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Create,
    Delete,
    /// A deletion without a grace period.
    ForceDelete,
    /// Its containers end.
    Finish,
    RemoveAnnotation,
    SpoilAnnotation,
    /// It gets the annotation of this other pod.
    CopyAnnotation(usize),
    RemoveFinalizers,
    DeleteLease,
    /// An administrator deletes a port in the cloud.
    DeletePort,
    /// No further port may be created for this time.
    Quota(Duration),
    /// The API server forgets its history.
    Forget,
    Replica(usize, Command),
}

/// One fault or change, with its time and the number of the pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    at: Duration,
    pod: usize,
    what: Happening,
}

/// What a seed decides.
pub(crate) struct Plan {
    replicas: usize,
    pool: bool,
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    fn of(world: &World) -> Self {
        let mut draw = world.choices.at("plan");
        let replicas = 1 + draw.below(3);
        let pool = draw.chance(500);
        let mut steps = Vec::new();
        for pod in 0..NAMES {
            let at = world.choices.at("create").time(Duration::ZERO, STORM / 3);
            steps.push(Step { at, pod, what: Happening::Create });
        }
        for _ in 0..8 + draw.below(12) {
            let mut draw = world.choices.at("step");
            let at = draw.time(Duration::from_secs(20), STORM);
            let (pod, other, replica) = (draw.below(NAMES), draw.below(NAMES), draw.below(replicas));
            let long = draw.time(Duration::from_secs(5), Duration::from_secs(60));
            let what = match draw.below(32) {
                0..4 => Happening::Create,
                4..7 => Happening::Delete,
                7..9 => Happening::ForceDelete,
                9..11 => Happening::Finish,
                11..13 => Happening::RemoveAnnotation,
                13 => Happening::SpoilAnnotation,
                14..16 => Happening::CopyAnnotation(other),
                16 => Happening::RemoveFinalizers,
                17 => Happening::DeleteLease,
                18 => Happening::Forget,
                28 | 29 => Happening::DeletePort,
                30 | 31 => Happening::Quota(long),
                19..23 => Happening::Replica(replica, Command::Crash),
                23..25 => Happening::Replica(replica, Command::Stop),
                _ => Happening::Replica(replica, Command::Part(long)),
            };
            steps.push(Step { at, pod, what });
        }
        Self { replicas, pool, steps }
    }
}

/// Runs the world of one seed, without the steps whose numbers are in `without`. Returns the number of steps.
pub(crate) async fn run(world: &Arc<World>, without: &[usize]) -> usize {
    let plan = Plan::of(world);
    world.note("world", &format!("{} replicas, pool: {}", plan.replicas, plan.pool));
    for node in ["n0", "n1"] {
        let node = json!({ "metadata": { "name": node } });
        world.request("world", Method::POST, "/api/v1/nodes", &node).await;
    }
    let mut replicas = Vec::new();
    for number in 0..plan.replicas {
        let (sender, commands) = mpsc::channel(64);
        replicas.push(sender);
        tokio::spawn(replica::run(Arc::clone(world), format!("replica-{number}"), plan.pool, commands));
    }
    tokio::spawn(kubelet(Arc::clone(world)));
    let begin = Instant::now();
    let mut steps: Vec<_> = plan.steps.iter().enumerate().collect();
    steps.sort_by_key(|(_, step)| step.at);
    for (number, step) in steps {
        sleep_until(begin + step.at).await;
        if !without.contains(&number) {
            world.note("adversary", &format!("step {number}: {:?} of pod {}", step.what, step.pod));
            happen(world, step, &replicas).await;
        }
    }
    sleep_until(begin + STORM).await;
    world.end_storm();
    sleep(REST).await;
    // As their Events say.
    for (pod, is_readable) in world.hopeless() {
        let path = format!("{PODS}/{pod}");
        if is_readable {
            world.request("tenant", Method::DELETE, &path, &Value::Null).await;
        } else {
            world.request("tenant", Method::PATCH, &path, &annotate(None)).await;
        }
    }
    converge(world).await;
    plan.steps.len()
}

/// Waits until everything has converged, and then, that nothing changes any more.
async fn converge(world: &World) {
    let deadline = Instant::now() + CONVERGENCE;
    while let Some(reason) = world.unsettled() {
        if Instant::now() > deadline {
            return world.violated(&format!("no convergence: {reason}"));
        }
        sleep(Duration::from_secs(5)).await;
    }
    world.note("world", "everything has converged");
    // A pool is refilled, or loses its surplus, after that.
    sleep(REST).await;
    let before = world.changes();
    sleep(REST).await;
    let changes = world.changes() - before;
    if changes > 0 {
        world.violated(&format!("{changes} changes although everything has converged"));
    }
    if let Some(reason) = world.unsettled() {
        world.violated(&format!("it has converged, and does not stay so: {reason}"));
    }
}

/// Returns the patch that writes the annotation of a pod.
fn annotate(value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { KURYR_VIF: value } } })
}

async fn happen(world: &World, step: &Step, replicas: &[mpsc::Sender<Command>]) {
    let name = format!("p{}", step.pod);
    let path = format!("{PODS}/{name}");
    let tenant = async |method, path: &str, body: Value| world.request("tenant", method, path, &body).await;
    match step.what {
        Happening::Create => {
            tenant(Method::POST, PODS, pod(&name, ["n0", "n1"][step.pod % 2])).await;
        }
        Happening::Delete => {
            tenant(Method::DELETE, &path, Value::Null).await;
        }
        Happening::ForceDelete => {
            tenant(Method::DELETE, &path, json!({ "gracePeriodSeconds": 0 })).await;
        }
        Happening::Finish => {
            let status = json!({ "status": { "phase": "Succeeded" } });
            world.request("kubelet", Method::PATCH, &format!("{path}/status"), &status).await;
        }
        Happening::RemoveAnnotation => {
            tenant(Method::PATCH, &path, annotate(None)).await;
        }
        Happening::SpoilAnnotation => {
            tenant(Method::PATCH, &path, annotate(Some("nonsense"))).await;
        }
        Happening::CopyAnnotation(other) => {
            let other = format!("p{other}");
            let other = world.pods().into_values().find(|pod| pod.name == other);
            if let Some((copied, vifs)) = other.and_then(|pod| Some((pod.annotation.clone()?, pod.vifs()?))) {
                world.copy(vifs.default_vif.id);
                tenant(Method::PATCH, &path, annotate(Some(&copied))).await;
            }
        }
        Happening::RemoveFinalizers => {
            tenant(Method::PATCH, &path, json!({ "metadata": { "finalizers": null } })).await;
        }
        Happening::DeleteLease => {
            tenant(Method::DELETE, LEASE, Value::Null).await;
        }
        Happening::DeletePort => {
            let ports = world.network.ports();
            if let Some(port) = ports.get(step.pod % ports.len().max(1)) {
                world.note("admin", &format!("deletes the port {}", port.vif.id));
                world.network.remove_port(&port.vif.id);
            }
        }
        Happening::Quota(time) => {
            let network = Arc::clone(&world.network);
            network.set_port_quota(Some(u32::try_from(network.ports().len()).expect("there are few")));
            tokio::spawn(async move {
                sleep(time).await;
                network.set_port_quota(None);
            });
        }
        Happening::Forget => world.server.trim_event_log(),
        Happening::Replica(number, command) => {
            // A replica that starts again gets the command then.
            let _ = replicas[number].try_send(command);
        }
    }
}

/// The kubelets of all nodes: a pod is started with the VIF that the leader has accepted, and with no other one.
async fn kubelet(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        for (uid, pod) in world.pods() {
            let path = format!("{PODS}/{}", pod.name);
            let preconditions = json!({ "uid": uid });
            if pod.deleting {
                if pod.grace > 0 {
                    let now = json!({ "gracePeriodSeconds": 0, "preconditions": preconditions });
                    world.request("kubelet", Method::DELETE, &path, &now).await;
                }
            } else if pod.phase == "Pending"
                && let Some(vifs) = pod.vifs()
                && vifs.default_vif.active
                && world.shown(&uid).as_ref() == Some(&vifs.default_vif.id)
            {
                world.start_pod(&uid, &vifs.default_vif.id);
                let ips: Vec<_> = vifs.default_vif.ips().map(|ip| ip.to_string()).collect();
                let status = json!({ "metadata": preconditions, "status": { "phase": "Running",
                    "podIP": ips.first(), "podIPs": ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>() } });
                world.request("kubelet", Method::PATCH, &format!("{path}/status"), &status).await;
            }
        }
    }
}
