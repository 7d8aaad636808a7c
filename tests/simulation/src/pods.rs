//! The world of pods: a seed decides whether a pool keeps VIFs ready, and what tenants and administrators do.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use staffetta_network::os_vif::KURYR_VIF;
use tokio::time::sleep;

use crate::replica::Options;
use crate::storm::{self, NAMES, Scene};
use crate::world::World;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// An operation on a pod, or on its port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Create,
    Delete,
    /// A deletion without a grace period.
    ForceDelete,
    /// Its containers end.
    Finish,
    RemoveAnnotation,
    DamageAnnotation,
    /// It gets the annotation of this other pod.
    CopyAnnotation(usize),
    RemoveFinalizers,
    /// An administrator deletes a port in the cloud.
    DeletePort,
    /// No further port may be created for this time.
    Quota(Duration),
}

/// Runs the world of one seed, without the steps whose numbers are in `without`. Returns the number of steps.
pub(crate) async fn run(world: &Arc<World>, without: &[usize]) -> usize {
    let mut draw = world.choices.at("plan");
    let replicas = 1 + draw.below(3);
    let options = Options { handlers: "[\"vif\"]", pool: draw.chance(500), groups: "memory" };
    let steps = storm::steps(
        world,
        replicas,
        |_| vec![Happening::Create],
        |draw| {
            Some(match draw.below(32) {
                0..4 => Happening::Create,
                4..7 => Happening::Delete,
                7..9 => Happening::ForceDelete,
                9..11 => Happening::Finish,
                11..13 => Happening::RemoveAnnotation,
                13 => Happening::DamageAnnotation,
                14..16 => Happening::CopyAnnotation(draw.below(NAMES)),
                16 => Happening::RemoveFinalizers,
                17..19 => Happening::DeletePort,
                19..21 => Happening::Quota(storm::some_time(draw)),
                _ => return None,
            })
        },
    );
    prepare(world).await;
    storm::run(world, &Pods, replicas, options, &steps, without).await;
    steps.len()
}

/// Creates the nodes, and starts their kubelets.
pub(crate) async fn prepare(world: &Arc<World>) {
    for node in ["n0", "n1"] {
        let node = json!({ "metadata": { "name": node } });
        world.request("world", Method::POST, "/api/v1/nodes", &node).await;
    }
    tokio::spawn(kubelet(Arc::clone(world)));
}

pub(crate) struct Pods;

impl Scene for Pods {
    type Happening = Happening;

    async fn happen(&self, world: &Arc<World>, object: usize, what: Happening) {
        let name = format!("p{object}");
        let path = format!("{PODS}/{name}");
        let tenant =
            async |method, path: &str, body: Value| world.request("tenant", method, path, &body).await;
        match what {
            Happening::Create => {
                let spec = json!({ "nodeName": (["n0", "n1"][object % 2]),
                    "containers": [{ "name": "c", "image": "i" }] });
                tenant(Method::POST, PODS, json!({ "metadata": { "name": name }, "spec": spec })).await;
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
            Happening::DamageAnnotation => {
                tenant(Method::PATCH, &path, annotate(Some("nonsense"))).await;
            }
            Happening::CopyAnnotation(other) => {
                let other = format!("p{other}");
                let other = world.pods().into_values().find(|pod| pod.name == other);
                let shown = other.and_then(|pod| Some((pod.annotation.clone()?, pod.vifs()?)));
                if let Some((copied, vifs)) = shown {
                    world.copy(vifs.default_vif.id);
                    tenant(Method::PATCH, &path, annotate(Some(&copied))).await;
                }
            }
            Happening::RemoveFinalizers => {
                tenant(Method::PATCH, &path, json!({ "metadata": { "finalizers": null } })).await;
            }
            Happening::DeletePort => {
                let ports = world.network.ports();
                if let Some(port) = ports.get(object % ports.len().max(1)) {
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
        }
    }

    async fn follow_events(&self, world: &Arc<World>) {
        for (pod, must_go) in world.hopeless() {
            let path = format!("{PODS}/{pod}");
            if must_go {
                world.request("tenant", Method::DELETE, &path, &Value::Null).await;
            } else {
                world.request("tenant", Method::PATCH, &path, &annotate(None)).await;
            }
        }
    }

    fn unsettled(&self, world: &World) -> Option<String> {
        world.unsettled_pods()
    }
}

/// Returns the patch that writes the annotation of a pod.
fn annotate(value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { KURYR_VIF: value } } })
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
