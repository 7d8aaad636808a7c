//! The world of services: load balancers follow their services, endpoints and types, and somebody changes them in the cloud, too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use staffetta_network::lb::STATE_ANNOTATION;
use staffetta_network::lbaasspec::SPEC_ANNOTATION;
use tokio::time::sleep;

use crate::choices::Draw;
use crate::replica::Options;
use crate::storm::{self, Scene};
use crate::views::ServiceView;
use crate::world::World;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// An operation on a service, or on its load balancer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Create,
    Delete,
    /// It has these ports, one for each bit.
    SetPorts(usize),
    /// It has these endpoints, one for each bit.
    SetEndpoints(usize),
    /// It gets a public address (`LoadBalancer`), or has none (`ClusterIP`).
    SetPublic(bool),
    RemoveAnnotations,
    DamageState,
    RemoveFinalizers,
    /// An administrator deletes its load balancer in the cloud.
    DeleteLoadBalancer,
    /// Its load balancer gets into the state ERROR.
    BreakLoadBalancer,
    /// No further load balancer may be created for this time.
    Quota(Duration),
}

/// Runs the world of one seed, without the steps whose numbers are in `without`. Returns the number of steps.
pub(crate) async fn run(world: &Arc<World>, without: &[usize]) -> usize {
    let mut draw = world.choices.at("plan");
    let replicas = 1 + draw.below(3);
    let options = Options { handlers: "[\"lbaasspec\", \"lb\"]", pool: false, groups: "memory" };
    let create = |draw: &mut Draw| vec![Happening::Create, Happening::SetEndpoints(draw.below(16))];
    let steps = storm::steps(world, replicas, create, |draw| {
        Some(match draw.below(34) {
            0..3 => Happening::Create,
            3..6 => Happening::Delete,
            6..8 => Happening::SetPorts(draw.below(16)),
            8..12 => Happening::SetEndpoints(draw.below(16)),
            12..15 => Happening::SetPublic(draw.chance(500)),
            15 => Happening::RemoveAnnotations,
            16 => Happening::DamageState,
            17 => Happening::RemoveFinalizers,
            18..20 => Happening::DeleteLoadBalancer,
            20 => Happening::BreakLoadBalancer,
            21 => Happening::Quota(storm::some_time(draw)),
            _ => return None,
        })
    });
    storm::run(world, &Services::default(), replicas, options, &steps, without).await;
    steps.len()
}

/// The services.
#[derive(Default)]
struct Services {
    /// The UIDs of those that somebody has taken our finalizer from. If their annotation is lost, too, nothing tells who wrote an address
    /// into the status of a service that wants none.
    unmarked: Mutex<BTreeSet<String>>,
}

impl Services {
    fn unmarked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unmarked.lock().expect("nothing panics with it")
    }
}

impl Scene for Services {
    type Happening = Happening;

    async fn happen(&self, world: &Arc<World>, object: usize, what: Happening) {
        let name = format!("s{object}");
        let path = format!("{SERVICES}/{name}");
        let tenant =
            async |method, path: &str, body: Value| world.request("tenant", method, path, &body).await;
        match what {
            Happening::Create => {
                let kind = if object.is_multiple_of(3) { "LoadBalancer" } else { "ClusterIP" };
                let spec = json!({ "type": kind, "clusterIP": format!("10.96.0.{}", 10 + object),
                    "selector": { "app": name }, "ports": ports(1) });
                tenant(Method::POST, SERVICES, json!({ "metadata": { "name": name }, "spec": spec })).await;
            }
            Happening::Delete => {
                tenant(Method::DELETE, &path, Value::Null).await;
            }
            Happening::SetPorts(bits) => {
                tenant(Method::PATCH, &path, json!({ "spec": { "ports": ports(bits | 1) } })).await;
            }
            Happening::SetEndpoints(bits) => {
                let endpoints: Vec<_> = addresses(object, bits)
                    .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
                    .collect();
                let ports: Vec<_> =
                    (0..4).map(|port| json!({ "name": format!("n{port}"), "port": 8080 + port })).collect();
                let slice = json!({ "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
                    "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } } });
                let (code, _) = tenant(Method::POST, SLICES, slice.clone()).await;
                if code == 409 {
                    tenant(
                        Method::PATCH,
                        &format!("{SLICES}/{name}"),
                        json!({ "endpoints": slice["endpoints"] }),
                    )
                    .await;
                }
            }
            Happening::SetPublic(public) => {
                let kind = if public { "LoadBalancer" } else { "ClusterIP" };
                tenant(Method::PATCH, &path, json!({ "spec": { "type": kind } })).await;
            }
            Happening::RemoveAnnotations => {
                let annotations = json!({ SPEC_ANNOTATION: null, STATE_ANNOTATION: null });
                tenant(Method::PATCH, &path, json!({ "metadata": { "annotations": annotations } })).await;
            }
            Happening::DamageState => {
                let annotations = json!({ STATE_ANNOTATION: "nonsense" });
                tenant(Method::PATCH, &path, json!({ "metadata": { "annotations": annotations } })).await;
            }
            Happening::RemoveFinalizers => {
                let services = world.services_view().into_iter().filter(|(_, service)| service.name == name);
                self.unmarked().extend(services.map(|(uid, _)| uid));
                tenant(Method::PATCH, &path, json!({ "metadata": { "finalizers": null } })).await;
            }
            Happening::DeleteLoadBalancer | Happening::BreakLoadBalancer => {
                let balancers = world.services.load_balancers();
                if let Some((_, balancer)) = balancers.get(object % balancers.len().max(1)) {
                    world.note("admin", &format!("{what:?} {}", balancer.id));
                    match what {
                        Happening::DeleteLoadBalancer => world.services.remove_load_balancer(&balancer.id),
                        _ => world.services.break_load_balancer(&balancer.id),
                    }
                }
            }
            Happening::Quota(time) => {
                let services = Arc::clone(&world.services);
                let number = u32::try_from(services.load_balancers().len()).expect("there are few");
                services.set_load_balancer_quota(Some(number));
                tokio::spawn(async move {
                    sleep(time).await;
                    services.set_load_balancer_quota(None);
                });
            }
        }
    }

    async fn follow_events(&self, world: &Arc<World>) {
        let is_wrong = |service: &ServiceView| {
            let is_gone = |id| world.services.load_balancer(id).is_none();
            service.malformed || service.shown.as_ref().is_some_and(is_gone)
        };
        for service in world.services_view().into_values().filter(is_wrong) {
            let path = format!("{SERVICES}/{}", service.name);
            let annotations = json!({ STATE_ANNOTATION: null });
            let patch = json!({ "metadata": { "annotations": annotations } });
            world.request("tenant", Method::PATCH, &path, &patch).await;
        }
    }

    fn unsettled(&self, world: &World) -> Option<String> {
        let (services, balancers) = (world.services_view(), world.services.load_balancers());
        for (uid, service) in &services {
            let name = &service.name;
            if service.deleting {
                return Some(format!("the service {name} is still being deleted"));
            }
            let owned = balancers
                .iter()
                .filter(|(owner, _)| owner.as_ref().is_some_and(|owner| owner.uid.as_str() == uid));
            let owned: Vec<_> = owned.map(|(_, balancer)| balancer).collect();
            let [balancer] = owned[..] else {
                return Some(format!("the service {name} has {} load balancers", owned.len()));
            };
            if service.shown.as_ref() != Some(&balancer.id) {
                return Some(format!("the service {name} does not show its load balancer"));
            }
            let wanted: BTreeSet<_> = service.ports.iter().copied().collect();
            let listeners: BTreeSet<_> = balancer.listeners.iter().map(|listener| listener.at.port).collect();
            if wanted != listeners {
                return Some(format!(
                    "the service {name} has the ports {wanted:?}, its listeners are {listeners:?}"
                ));
            }
            let endpoints = world.endpoints(name);
            for listener in &balancer.listeners {
                let members = listener.pool.iter().flat_map(|pool| &pool.members);
                let members: BTreeSet<_> = members.map(|member| member.spec.ip.to_string()).collect();
                if members != endpoints {
                    return Some(format!(
                        "the service {name} has the endpoints {endpoints:?}, but {members:?} are members"
                    ));
                }
            }
            let public = world.services.public_ips();
            let owned = public
                .iter()
                .filter(|(owner, _)| owner.as_ref().is_some_and(|owner| owner.uid.as_str() == uid))
                .count();
            if owned != usize::from(service.public) {
                return Some(format!("the service {name} has {owned} public addresses"));
            }
            let associated = public.iter().find(|(_, public)| public.port.as_ref() == Some(&balancer.port));
            let address = associated.map(|(_, public)| public.ip.to_string());
            let has_foreign = !service.public && self.unmarked().contains(uid);
            if service.public != address.is_some() || service.ingress != address && !has_foreign {
                return Some(format!(
                    "the service {name}: public: {}, address {address:?}, status {:?}",
                    service.public, service.ingress
                ));
            }
        }
        let owners = balancers.iter().map(|(owner, _)| owner).cloned();
        let owners = owners.chain(world.services.public_ips().into_iter().map(|(owner, _)| owner)).flatten();
        let lost = owners.into_iter().find(|owner| !services.contains_key(owner.uid.as_str()));
        lost.map(|owner| format!("something of the service {} is left: {}", owner.name, owner.uid))
    }
}

/// Returns the ports of a service, one for each bit.
fn ports(bits: usize) -> Vec<Value> {
    let port =
        |port: usize| json!({ "name": format!("n{port}"), "port": 80 + port, "targetPort": 8080 + port });
    (0..4).filter(|port| bits & 1 << port != 0).map(port).collect()
}

/// Returns the addresses of endpoints, one for each bit.
fn addresses(object: usize, bits: usize) -> impl Iterator<Item = String> {
    (0..4)
        .filter(move |number| bits & 1 << number != 0)
        .map(move |number| format!("10.10.{object}.{}", 10 + number))
}
