//! A network for one test, in this process or behind HTTP, and the drivers that reach it.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{
    DriverError, Listener, ListenerChange, ListenerDriver, ListenerPort, ListenerSettings, ListenerSpec,
    LoadBalancer, LoadBalancerDriver, LoadBalancerSpec, Member, MemberSpec, Owner, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, PoolSpec, Protocol, PublicIpRequest,
    ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver,
    VifPoolDriver, VifRequest,
};
use staffetta_memory::http::{Client, Fault, Method, Server, ServerOptions, SimulatedOptions};
use staffetta_memory::{LoadBalancerMethod, PublicIpMethod, VifMethod};
use staffetta_memory::{
    MemoryLoadBalancerDriver, MemoryNetwork, MemoryOptions, MemoryPublicIpDriver, MemoryServices,
    MemoryVifDriver,
};
use staffetta_pool::NoopVifPool;

/// The timeout of a step of a test. It is no measure of speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A port of a service.
pub(crate) const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };

/// The changes of listeners, each with the part of the load balancer that it is about.
pub(crate) trait ListenerCalls: ListenerDriver {
    async fn ensure_listener(
        &self,
        balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        let changed = self.change_listener(balancer, &ListenerChange::Ensure(spec.clone())).await?;
        Ok(changed.listener(spec.at).cloned().expect("it was ensured"))
    }

    async fn release_listener(
        &self,
        balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        let observed = balancer.with_listener(listener.at, Some(listener.clone()));
        let changed = self.change_listener(&observed, &ListenerChange::Release(listener.at)).await?;
        Ok(changed.listener(listener.at).cloned())
    }

    async fn set_members(
        &self,
        balancer: &LoadBalancer,
        at: ListenerPort,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        let changed =
            self.change_listener(balancer, &ListenerChange::SetMembers(at, members.to_vec())).await?;
        Ok(changed.listener(at).and_then(|listener| listener.pool.clone()).expect("it has a pool").members)
    }
}

impl<D: ListenerDriver + ?Sized> ListenerCalls for D {}

/// The place of the cloud.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    InMemory,
    OverHttp,
}

impl Place {
    /// A network with these options.
    pub(crate) fn world(self, options: MemoryOptions) -> World {
        match self {
            Self::InMemory => World::InMemory {
                network: Arc::new(MemoryNetwork::new(options.clone())),
                services: Arc::new(MemoryServices::new(options)),
            },
            Self::OverHttp => World::OverHttp(Remote::start(options)),
        }
    }

    /// The drivers of the cluster `east` in a network of their own.
    pub(crate) fn drivers(self, options: MemoryOptions) -> Drivers {
        self.world(options).drivers("east")
    }
}

/// A network.
pub(crate) enum World {
    InMemory { network: Arc<MemoryNetwork>, services: Arc<MemoryServices> },
    OverHttp(Remote),
}

/// A network behind HTTP.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) server: Arc<Server>,
    pub(crate) client: Client,
}

impl Remote {
    pub(crate) fn start(memory: MemoryOptions) -> Self {
        Self::with(&ServerOptions { memory, ..ServerOptions::default() })
    }

    pub(crate) fn with(options: &ServerOptions) -> Self {
        let server = Arc::new(Server::start(options).unwrap());
        Self { client: client(server.url(), 60_000), server }
    }

    /// The drivers of the cluster of that name.
    pub(crate) fn drivers(&self, cluster: &str) -> Drivers {
        Drivers { _server: Some(Arc::clone(&self.server)), ..over_http(&self.client, cluster) }
    }
}

pub(crate) fn client(url: &str, timeout_ms: u64) -> Client {
    Client::new(&SimulatedOptions { url: url.into(), timeout_ms }).unwrap()
}

/// All drivers of one cluster, as handlers hold them.
pub(crate) struct Drivers {
    pub(crate) pod_projects: Arc<dyn PodProjectDriver>,
    pub(crate) pod_subnets: Arc<dyn PodSubnetsDriver>,
    pub(crate) pod_security_groups: Arc<dyn PodSecurityGroupsDriver>,
    pub(crate) vifs: Arc<dyn PodVifDriver>,
    pub(crate) pool: Arc<dyn VifPoolDriver>,
    pub(crate) service_projects: Arc<dyn ServiceProjectDriver>,
    pub(crate) service_subnets: Arc<dyn ServiceSubnetsDriver>,
    pub(crate) service_security_groups: Arc<dyn ServiceSecurityGroupsDriver>,
    pub(crate) balancers: Arc<dyn LoadBalancerDriver>,
    pub(crate) public_ips: Arc<dyn ServicePublicIpDriver>,
    faults: Faults,
    /// A network that nobody else holds lives as long as its drivers.
    _server: Option<Arc<Server>>,
}

enum Faults {
    InMemory {
        vifs: Arc<MemoryVifDriver>,
        balancers: Arc<MemoryLoadBalancerDriver>,
        public_ips: Arc<MemoryPublicIpDriver>,
    },
    OverHttp(Client),
}

impl World {
    /// The drivers of the cluster of that name.
    pub(crate) fn drivers(&self, cluster: &str) -> Drivers {
        match self {
            Self::InMemory { network, services } => in_memory(network, services, cluster),
            Self::OverHttp(remote) => remote.drivers(cluster),
        }
    }
}

fn in_memory(network: &Arc<MemoryNetwork>, services: &Arc<MemoryServices>, cluster: &str) -> Drivers {
    let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(network), cluster.into()));
    let balancers = Arc::new(MemoryLoadBalancerDriver::new(Arc::clone(services), cluster.into()));
    let public_ips = Arc::new(MemoryPublicIpDriver::new(Arc::clone(services), cluster.into()));
    Drivers {
        pod_projects: Arc::clone(network) as _,
        pod_subnets: Arc::clone(network) as _,
        pod_security_groups: Arc::clone(network) as _,
        vifs: vifs.clone(),
        pool: Arc::new(NoopVifPool::new(vifs.clone())),
        service_projects: Arc::clone(services) as _,
        service_subnets: Arc::clone(services) as _,
        service_security_groups: Arc::clone(services) as _,
        balancers: balancers.clone(),
        public_ips: public_ips.clone(),
        faults: Faults::InMemory { vifs, balancers, public_ips },
        _server: None,
    }
}

/// The drivers of the cluster of that name, which reach a network by `client`.
pub(crate) fn over_http(client: &Client, cluster: &str) -> Drivers {
    let driver = Arc::new(client.driver(cluster.into()));
    Drivers {
        pod_projects: driver.clone(),
        pod_subnets: driver.clone(),
        pod_security_groups: driver.clone(),
        vifs: driver.clone(),
        pool: driver.clone(),
        service_projects: driver.clone(),
        service_subnets: driver.clone(),
        service_security_groups: driver.clone(),
        balancers: driver.clone(),
        public_ips: driver,
        faults: Faults::OverHttp(client.clone()),
        _server: None,
    }
}

impl Drivers {
    /// The next call of the method gets this fault.
    pub(crate) async fn inject(&self, method: Method, fault: Fault) {
        match &self.faults {
            Faults::OverHttp(client) => client.inject(method, 1, &fault).await.unwrap(),
            Faults::InMemory { vifs, balancers, public_ips } => match method {
                Method::RequestVif => vifs.faults().inject(VifMethod::Request, 1, fault),
                Method::ReleaseVif => vifs.faults().inject(VifMethod::Release, 1, fault),
                Method::ListVifs => vifs.faults().inject(VifMethod::List, 1, fault),
                Method::EnsureLoadBalancer => balancers.faults().inject(LoadBalancerMethod::Ensure, 1, fault),
                Method::AcquirePublicIp => public_ips.faults().inject(PublicIpMethod::Acquire, 1, fault),
                other => panic!("no test breaks {other}"),
            },
        }
    }

    /// A request for the pod of that name, as the handler makes it.
    pub(crate) async fn vif_request(&self, name: &str) -> VifRequest {
        let pod = k8s_openapi::api::core::v1::Pod::default();
        let project = self.pod_projects.project(&pod).await.unwrap();
        VifRequest {
            owner: owner(name),
            node_name: "node-1".into(),
            host_ip: Some([192, 0, 2, 1].into()),
            subnets: self.pod_subnets.subnets(&pod, &project).await.unwrap(),
            security_groups: self.pod_security_groups.security_groups(&pod, &project).await.unwrap(),
            project,
        }
    }
}

/// Nothing takes time, and what is released is free at once.
pub(crate) fn instant() -> MemoryOptions {
    MemoryOptions {
        activation_delay_ms: 0,
        cool_down_ms: 0,
        load_balancer_delay_ms: 0,
        ..MemoryOptions::default()
    }
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

pub(crate) fn balancer(vip: &str) -> LoadBalancerSpec {
    LoadBalancerSpec {
        name: "default/web".into(),
        project: "p".into(),
        subnet: "services".into(),
        vip: vip.parse().unwrap(),
        provider: None,
        security_groups: Some(vec!["g".into()]),
        listeners: Vec::new(),
        adopt: None,
    }
}

pub(crate) fn http() -> ListenerSpec {
    ListenerSpec { at: HTTP, settings: ListenerSettings::default(), pool: PoolSpec::default() }
}

pub(crate) fn member(ip: &str) -> MemberSpec {
    MemberSpec { ip: ip.parse().unwrap(), port: 8080, name: format!("default/{ip}"), subnet: "pods".into() }
}

pub(crate) fn any_address() -> PublicIpRequest {
    PublicIpRequest { project: "p".into(), named: None, port: "port".into(), adopt: None }
}
