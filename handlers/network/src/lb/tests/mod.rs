mod adoption;
mod deletion;
mod drift;
mod endpoints;
mod failures;
mod forgery;
mod late;
mod laws;
mod pending;
mod piecewise;
mod presence;
mod public;
mod recovery;
mod settings;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use staffetta_driver::memory::{
    LoadBalancerCall, LoadBalancerMethod, MemoryLoadBalancerDriver, MemoryOptions, MemoryPublicIpDriver,
    MemoryServices, PublicIpCall,
};
use staffetta_driver::{ListenerPort, LoadBalancer, LoadBalancerSpec, Protocol};
use staffetta_handler::{
    ErasedHandler, ErasedSource, ErasedSweep, EventHandler, HandlerError, KindIndex, Turn, causes,
};

use super::*;
use crate::api_server::{Answer, ApiServer, THEIRS};
use crate::lbaasspec::{LbaasPortSpec, Reach};
use crate::notebook::Told as Notebook;
use crate::versioned_object::Versioned;

const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };

/// The handler, the simulated load balancers, and an API server with one service.
struct World {
    api: Arc<ApiServer<Service>>,
    services: Arc<MemoryServices>,
    balancers: Arc<MemoryLoadBalancerDriver>,
    addresses: Arc<MemoryPublicIpDriver>,
    told: Notebook,
    options: LoadBalancerOptions,
    handler: ErasedHandler,
    indexes: Vec<KindIndex>,
    sweep: Box<dyn ErasedSweep>,
    sources: Vec<Box<dyn ErasedSource>>,
}

/// A world with a service that has its load balancer, with one member.
async fn standing(spec: &LbaasServiceSpec) -> World {
    let world = world();
    world.want(spec);
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
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

/// A load balancer of somebody at this address, with nothing on it.
fn bare(vip: IpAddr) -> LoadBalancerSpec {
    LoadBalancerSpec {
        name: "default/web".into(),
        project: "memory".into(),
        subnet: "services".into(),
        vip,
        provider: None,
        security_groups: None,
        listeners: Vec::new(),
        adopt: None,
    }
}

impl World {
    fn new(options: MemoryOptions) -> Self {
        let services = Arc::new(MemoryServices::new(options));
        let balancers = Arc::new(MemoryLoadBalancerDriver::new(Arc::clone(&services), "east".into()));
        let addresses = Arc::new(MemoryPublicIpDriver::new(Arc::clone(&services), "east".into()));
        let api = ApiServer::new(&json!({ "clusterIP": "10.0.0.1" }), &json!({ "loadBalancer": {} }));
        let drivers = LbDrivers {
            load_balancer: Arc::clone(&balancers) as Arc<_>,
            public_ip: Arc::clone(&addresses) as Arc<_>,
        };
        let (told, options) = (Notebook::default(), LoadBalancerOptions::default());
        let handler = LbHandler::new(api.client(), drivers).options(options.clone()).telling(told.notes());
        let mut registration = handler.registration(true).erase();
        let sources = registration.take_sources();
        let (handler, indexes, sweep) = registration.into_parts();
        let sweep = sweep.expect("the handler has a sweep");
        Self { api, services, balancers, addresses, told, options, handler, indexes, sweep, sources }
    }

    fn drivers(&self) -> LbDrivers {
        let (load_balancer, public_ip) = (Arc::clone(&self.balancers), Arc::clone(&self.addresses));
        LbDrivers { load_balancer, public_ip }
    }

    /// A new process takes over, which knows nothing.
    fn replace(&mut self, drivers: LbDrivers, has_slices: bool) {
        let handler = LbHandler::new(self.api.client(), drivers);
        let handler = handler.options(self.options.clone()).telling(self.told.notes());
        let mut registration = handler.registration(has_slices).erase();
        self.sources = registration.take_sources();
        let (handler, indexes, sweep) = registration.into_parts();
        (self.handler, self.indexes) = (handler, indexes);
        self.sweep = sweep.expect("the handler has a sweep");
    }

    /// The controller is killed and started again; it reads the marks, and every object is new to it.
    async fn restart(&mut self) {
        self.replace(self.drivers(), true);
        self.sweep.recover().await.unwrap();
    }

    async fn feed<K>(&self, event: Event<K>) -> Result<(), HandlerError>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let event = event.erase();
        self.index(&event);
        if self.handler.wants(&event) { self.handler.handle(&event, &Turn::alone()).await } else { Ok(()) }
    }

    /// The indexes learn of an event, which waits for its turn.
    fn index(&self, event: &staffetta_handler::AnyEvent) {
        for index in self.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(event);
        }
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

    /// The service says this, and its spec says so.
    fn want(&self, spec: &LbaasServiceSpec) {
        let port = |Versioned(port): &Versioned<LbaasPortSpec>| json!({ "name": port.name, "port": port.port, "protocol": port.protocol });
        let ports: Vec<_> = spec.ports.iter().map(port).collect();
        self.api.change(|service| {
            let fields = [
                ("clusterIP", json!(spec.ip)),
                ("loadBalancerIP", json!(spec.lb_ip)),
                ("ports", json!(ports)),
                ("type", json!(spec.reach)),
            ];
            for (field, value) in fields {
                service["spec"][field] = value;
            }
            service["metadata"]["annotations"][SPEC_ANNOTATION] = json!(spec.to_text());
        });
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

    /// What the driver of load balancers was asked, less the details, and less how far it is.
    fn calls(&self) -> Vec<&'static str> {
        let name = |call| match call {
            LoadBalancerCall::List(_) => Some("list"),
            LoadBalancerCall::Ensure(_) => Some("ensure"),
            LoadBalancerCall::Progress(_) => None,
            LoadBalancerCall::Release(..) => Some("release"),
            LoadBalancerCall::EnsureListener(..) => Some("ensure listener"),
            LoadBalancerCall::ReleaseListener(..) => Some("release listener"),
            LoadBalancerCall::SetMembers(..) => Some("set members"),
        };
        self.balancers.calls().into_iter().filter_map(name).collect()
    }
}
