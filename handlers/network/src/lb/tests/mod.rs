mod adoption;
mod deletion;
mod endpoints;
mod failures;
mod late;
mod laws;
mod presence;
mod public;
mod recovery;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use staffetta_driver::memory::{
    LoadBalancerCall, LoadBalancerMethod, MemoryLoadBalancerDriver, MemoryOptions, MemoryPublicIpDriver,
    MemoryServices, PublicIpCall,
};
use staffetta_driver::{ListenerPort, LoadBalancer, Protocol};
use staffetta_handler::{ErasedHandler, ErasedSweep, EventHandler, HandlerError, KindIndex, Turn, causes};

use super::*;
use crate::api_server::{Answer, ApiServer, THEIRS};
use crate::lbaasspec::{LbaasPortSpec, Reach};
use crate::versioned_object::Versioned;

const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };

/// The handler, the simulated load balancers, and an API server with one service.
struct World {
    api: Arc<ApiServer<Service>>,
    services: Arc<MemoryServices>,
    balancers: Arc<MemoryLoadBalancerDriver>,
    addresses: Arc<MemoryPublicIpDriver>,
    handler: ErasedHandler,
    indexes: Vec<KindIndex>,
    sweep: Box<dyn ErasedSweep>,
}

/// A world in which changes take no time, and a service that wants a listener on port 80.
fn world() -> World {
    let world = World::new(MemoryOptions { load_balancer_delay_ms: 0, ..MemoryOptions::default() });
    world.want(&spec());
    world
}

fn spec() -> LbaasServiceSpec {
    LbaasServiceSpec {
        ip: [10, 0, 0, 1].into(),
        lb_ip: None,
        ports: vec![port("http", 80)],
        project_id: "memory".into(),
        security_groups_ids: Vec::new(),
        subnet_id: "services".into(),
        reach: Reach::ClusterIP,
    }
}

fn port(name: &str, port: u16) -> Versioned<LbaasPortSpec> {
    Versioned(LbaasPortSpec { name: Some(name.into()), port, protocol: Protocol::Tcp })
}

fn public() -> LbaasServiceSpec {
    LbaasServiceSpec { reach: Reach::LoadBalancer, ..spec() }
}

fn slice(uid: &str, ips: &[&str]) -> Arc<EndpointSlice> {
    let endpoints: Vec<_> = ips.iter().map(|ip| json!({ "addresses": [ip] })).collect();
    let slice = json!({
        "metadata": { "namespace": "default", "name": uid, "uid": uid, "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080 }] });
    Arc::new(serde_json::from_value(slice).unwrap())
}

type Parts = (ErasedHandler, Vec<KindIndex>, Box<dyn ErasedSweep>);

impl World {
    fn new(options: MemoryOptions) -> Self {
        let services = Arc::new(MemoryServices::new(options));
        let balancers = Arc::new(MemoryLoadBalancerDriver::new(Arc::clone(&services), "east".into()));
        let addresses = Arc::new(MemoryPublicIpDriver::new(Arc::clone(&services), "east".into()));
        let api = ApiServer::new(&json!({ "clusterIP": "10.0.0.1" }), &json!({ "loadBalancer": {} }));
        let (handler, indexes, sweep) = parts(&api, &balancers, &addresses, true);
        Self { api, services, balancers, addresses, handler, indexes, sweep }
    }

    /// The controller is killed and started again; it reads the marks, and every object is new to it.
    async fn restart(&mut self) {
        (self.handler, self.indexes, self.sweep) = parts(&self.api, &self.balancers, &self.addresses, true);
        self.sweep.recover().await.unwrap();
    }

    async fn feed<K>(&self, event: Event<K>) -> Result<(), HandlerError>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let event = event.erase();
        for index in self.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event);
        }
        if self.handler.wants(&event) { self.handler.handle(&event, &Turn::alone()).await } else { Ok(()) }
    }

    /// The service's present state is delivered.
    async fn event(&self) -> Result<(), HandlerError> {
        self.feed(Event::Modified(self.api.object())).await
    }

    async fn slice(&self, uid: &str, ips: &[&str]) -> Result<(), HandlerError> {
        self.feed(Event::Modified(slice(uid, ips))).await
    }

    /// The service is gone, and the watch tells its last state.
    async fn deleted(&self) -> Result<(), HandlerError> {
        self.feed(Event::Deleted(Tombstone::Last(self.api.object()))).await
    }

    /// The service is gone, and nobody watched.
    async fn missed(&self) -> Result<(), HandlerError> {
        let identity = Identity::of::<Service>(Some("default".into()), "web".into(), "uid-web".into());
        self.feed(Event::<Service>::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// The deletion of the service is asked for.
    fn delete(&self) {
        self.api.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    }

    fn want(&self, spec: &LbaasServiceSpec) {
        self.api.annotate(SPEC_ANNOTATION, &spec.to_text());
    }

    /// The service is to have no load balancer any more.
    fn want_nothing(&self) {
        self.api.change(|service| {
            drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(SPEC_ANNOTATION));
        });
    }

    /// The one load balancer that exists.
    fn tree(&self) -> LoadBalancer {
        let mut trees = self.services.load_balancers();
        assert_eq!(trees.len(), 1, "{trees:?}");
        trees.remove(0).1
    }

    fn is_empty(&self) -> bool {
        self.services.load_balancers().is_empty() && self.services.public_ips().is_empty()
    }

    fn members(&self, at: ListenerPort) -> Vec<String> {
        let tree = self.tree();
        let members = &tree.listener(at).unwrap().pool.as_ref().unwrap().members;
        members.iter().map(|member| format!("{}:{}", member.spec.ip, member.spec.port)).collect()
    }

    /// What the service shows of its load balancer.
    fn shown(&self) -> Option<Standing> {
        self.api.annotation(STATE_ANNOTATION).map(|text| annotation::read(&text).unwrap())
    }

    fn ingress(&self) -> Vec<IpAddr> {
        let status = self.api.object().status.clone().and_then(|status| status.load_balancer);
        let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
        ingress.into_iter().map(|ingress| ingress.ip.unwrap().parse().unwrap()).collect()
    }

    fn finalizers(&self) -> Vec<String> {
        self.api.finalizers()
    }

    /// What the driver of load balancers was asked, less the details.
    fn calls(&self) -> Vec<&'static str> {
        let name = |call| match call {
            LoadBalancerCall::List(_) => "list",
            LoadBalancerCall::Ensure(_) => "ensure",
            LoadBalancerCall::Release(..) => "release",
            LoadBalancerCall::EnsureListener(..) => "ensure listener",
            LoadBalancerCall::ReleaseListener(..) => "release listener",
            LoadBalancerCall::SetMembers(..) => "set members",
        };
        self.balancers.calls().into_iter().map(name).collect()
    }
}

fn parts(
    api: &Arc<ApiServer<Service>>,
    balancers: &Arc<MemoryLoadBalancerDriver>,
    addresses: &Arc<MemoryPublicIpDriver>,
    has_slices: bool,
) -> Parts {
    let (load_balancer, public_ip) = (Arc::clone(balancers), Arc::clone(addresses));
    let handler = LbHandler::new(api.client(), LbDrivers { load_balancer, public_ip });
    let (handler, indexes, sweep) = handler.registration(has_slices).erase().into_parts();
    (handler, indexes, sweep.expect("the handler has a sweep"))
}
