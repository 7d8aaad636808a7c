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

use kube::Resource;
use parking_lot::Mutex;
use serde_json::json;
use staffetta_driver::{ListenerChange, ListenerPort, LoadBalancer, LoadBalancerSpec, Owner, Protocol, Uid};
use staffetta_handler::{
    AnyEvent, Context, EventHandler, GarbageCollector, HandlerError, Message, Source, TriggerSender, causes,
};
use staffetta_memory::{
    LoadBalancerCall, LoadBalancerMethod, MemoryLoadBalancerDriver, MemoryOptions, MemoryPublicIpDriver,
    MemoryServices, PublicIpCall,
};

use super::desired::DesiredState;
use super::settings::ServiceSettings;
use super::state::LbaasState;
use super::*;
use crate::lbaasspec::{LbaasPortSpec, LbaasSpecDrivers, ServiceType};
use crate::testing::api_server::{Answer, ApiServer, THEIRS};
use crate::testing::recorder::RecordedEvents;
use crate::versioned_object::Versioned;

const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };

/// The handler, the simulated load balancers, and an API server with one service.
struct World {
    api: Arc<ApiServer<Service>>,
    services: Arc<MemoryServices>,
    balancers: Arc<MemoryLoadBalancerDriver>,
    addresses: Arc<MemoryPublicIpDriver>,
    recorded: RecordedEvents,
    options: LoadBalancerOptions,
    handler: Registration,
}

/// Creates a world with a service that has its load balancer, with one member.
async fn balanced(spec: &LbaasServiceSpec) -> World {
    let world = world();
    world.want(spec);
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
}

/// Creates a world in which changes take no time, and a service that wants a listener on port 80.
fn world() -> World {
    let world = World::new(MemoryOptions { load_balancer_delay_ms: 0, ..MemoryOptions::default() });
    world.want(&spec());
    world
}

/// Creates a world with the option that adopts the resources that an annotation of Kuryr names.
fn adopting() -> World {
    let mut world = world();
    world.options.adopt_unmarked = true;
    world.replace(world.drivers(), true);
    world
}

fn placement(services: &Arc<MemoryServices>) -> LbaasSpecDrivers {
    LbaasSpecDrivers {
        project: Arc::clone(services) as _,
        subnets: Arc::clone(services) as _,
        security_groups: Arc::clone(services) as _,
    }
}

fn spec() -> LbaasServiceSpec {
    LbaasServiceSpec {
        ip: [10, 0, 0, 1].into(),
        lb_ip: None,
        ports: vec![port("http", 80)],
        project_id: "memory".into(),
        security_groups_ids: Vec::new(),
        subnet_id: "services".into(),
        service_type: ServiceType::ClusterIP,
    }
}

fn port(name: &str, port: u16) -> Versioned<LbaasPortSpec> {
    Versioned(LbaasPortSpec { name: Some(name.into()), port, protocol: Protocol::Tcp })
}

fn public() -> LbaasServiceSpec {
    LbaasServiceSpec { service_type: ServiceType::LoadBalancer, ..spec() }
}

fn slice(uid: &str, ips: &[&str]) -> Arc<EndpointSlice> {
    let endpoints: Vec<_> = ips.iter().map(|ip| json!({ "addresses": [ip] })).collect();
    let slice = json!({
        "metadata": { "namespace": "default", "name": uid, "uid": uid, "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080 }] });
    Arc::new(serde_json::from_value(slice).unwrap())
}

/// Returns the spec of a load balancer at this address without listeners.
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
            placement: placement(&services),
        };
        let (recorded, options) = (RecordedEvents::default(), LoadBalancerOptions::default());
        let handler = LbHandler::new(api.client(), drivers, options.clone(), recorded.recorder());
        let handler = handler.registration(true).erase();
        Self { api, services, balancers, addresses, recorded, options, handler }
    }

    fn garbage_collector(&self) -> &dyn GarbageCollector {
        &**self.handler.collector.as_ref().expect("the handler has a garbage collector")
    }

    fn drivers(&self) -> LbDrivers {
        let (load_balancer, public_ip) = (Arc::clone(&self.balancers), Arc::clone(&self.addresses));
        LbDrivers { load_balancer, public_ip, placement: placement(&self.services) }
    }

    /// Replaces the handler by a new one without records.
    fn replace(&mut self, drivers: LbDrivers, has_slices: bool) {
        let (options, recorder) = (self.options.clone(), self.recorded.recorder());
        self.replace_by(LbHandler::new(self.api.client(), drivers, options, recorder), has_slices);
    }

    fn replace_by(&mut self, handler: LbHandler, has_slices: bool) {
        self.handler = handler.registration(has_slices).erase();
    }

    /// Restarts the controller, which recovers from the marks.
    async fn restart(&mut self) {
        self.replace(self.drivers(), true);
        self.garbage_collector().recover().await.unwrap();
    }

    async fn feed<K>(&self, event: Event<K>) -> Result<(), HandlerError>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let event = event.erase();
        self.index(&event);
        if self.handler.wants(&event).is_taken() {
            self.handler.handle(&self.handler.resolve(&event), &Context::detached()).await.map(drop)
        } else {
            Ok(())
        }
    }

    /// Applies an event to the indexes only.
    fn index(&self, event: &AnyEvent) {
        for index in self.handler.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(event).unwrap();
        }
    }

    /// Delivers the present state of the service.
    async fn event(&self) -> Result<(), HandlerError> {
        self.feed(Event::Modified(self.api.object())).await
    }

    /// Runs a source for this time, and returns its triggers.
    async fn triggers_of(source: &dyn Source, time: Duration) -> Vec<AnyEvent> {
        let triggers = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&triggers);
        let sender = TriggerSender::new(move |trigger| taken.lock().push(trigger));
        assert!(tokio::time::timeout(time, source.run(sender)).await.is_err(), "it never ends");
        std::mem::take(&mut triggers.lock())
    }

    async fn slice(&self, uid: &str, ips: &[&str]) -> Result<(), HandlerError> {
        self.feed(Event::Modified(slice(uid, ips))).await
    }

    /// Delivers the deletion of the service with its last state.
    async fn deleted(&self) -> Result<(), HandlerError> {
        self.feed(Event::Deleted(Tombstone::Last(self.api.object()))).await
    }

    /// Delivers a missed deletion of the service.
    async fn missed(&self) -> Result<(), HandlerError> {
        let identity = Identity::of::<Service>(Some("default".into()), "web".into(), "uid-web".into());
        self.feed(Event::<Service>::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// Requests the deletion of the service.
    fn delete(&self) {
        self.api.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    }

    /// Changes the service and its spec annotation.
    fn want(&self, spec: &LbaasServiceSpec) {
        let port = |Versioned(port): &Versioned<LbaasPortSpec>| json!({ "name": port.name, "port": port.port, "protocol": port.protocol });
        let ports: Vec<_> = spec.ports.iter().map(port).collect();
        self.api.change(|service| {
            let fields = [
                ("clusterIP", json!(spec.ip)),
                ("loadBalancerIP", json!(spec.lb_ip)),
                ("ports", json!(ports)),
                ("type", json!(spec.service_type)),
            ];
            for (field, value) in fields {
                service["spec"][field] = value;
            }
            service["metadata"]["annotations"][SPEC_ANNOTATION] = json!(spec.to_text());
        });
    }

    /// Makes the service headless, and removes the spec annotation.
    fn want_nothing(&self) {
        self.api.change(|service| {
            service["spec"]["clusterIP"] = json!("None");
            drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(SPEC_ANNOTATION));
        });
    }

    /// Returns the only load balancer.
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

    /// Returns the published state.
    fn shown(&self) -> Option<LbaasState> {
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

    /// Returns the calls of the load balancer driver without details and status checks.
    fn calls(&self) -> Vec<&'static str> {
        let name = |call| match call {
            LoadBalancerCall::List(_) => Some("list"),
            LoadBalancerCall::Ensure(_) => Some("ensure"),
            LoadBalancerCall::Progress(_) => None,
            LoadBalancerCall::Release(..) => Some("release"),
            LoadBalancerCall::ChangeListener(_, change) => Some(match change {
                ListenerChange::Ensure(_) => "ensure listener",
                ListenerChange::Release(_) => "release listener",
                ListenerChange::SetMembers(..) => "set members",
            }),
        };
        self.balancers.calls().into_iter().filter_map(name).collect()
    }
}
