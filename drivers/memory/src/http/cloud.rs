//! The cloud of a server. It passes calls to the drivers in memory and logs their effects.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use staffetta_driver::{
    ClusterId, DriverError, ListenerChange, ListenerDriver, LoadBalancer, LoadBalancerDriver, LoadBalancerId,
    LoadBalancerSpec, Owned, Owner, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver,
    PodVifDriver, PortId, ProjectId, ProvisioningStatus, PublicIp, PublicIpId, PublicIpRequest,
    ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver, Vif,
    VifId, VifRequest,
};
use tokio::time::Instant;

use super::effects::{EffectKind, EffectLog, LoggedEffect, ResourceKind};
use super::method::Method;
use crate::lock::lock;
use crate::{
    Faults, MemoryLoadBalancerDriver, MemoryNetwork, MemoryOptions, MemoryPort, MemoryPublicIpDriver,
    MemoryServices, MemoryVifDriver,
};

/// The simulated cloud of a server, with its planned faults and its log of effects.
pub(super) struct ServedCloud {
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    /// The faults that are planned for later calls.
    pub(super) faults: Faults<Method>,
    /// The effects. It is locked while a call changes something, so that effects are logged in the order in which they happen.
    log: Mutex<EffectLog>,
    log_capacity: NonZeroUsize,
}

/// The method of a call, and the client that made it.
#[derive(Clone, Debug)]
pub(super) struct CallOrigin {
    /// The called method.
    pub(super) method: Method,
    /// The cluster in the ownership marks of created resources.
    pub(super) cluster: ClusterId,
    /// The id that the client gave the request, or `None` without one.
    pub(super) request_id: Option<String>,
}

/// A call whose arguments have been deserialized. Calling the closure executes it.
pub(super) type ReadyCall<'a> = Box<dyn FnOnce() -> Result<Value, DriverError> + Send + 'a>;

impl ServedCloud {
    /// Creates an empty cloud. Its log holds the last `log_capacity` effects.
    pub(super) fn new(options: MemoryOptions, log_capacity: NonZeroUsize) -> Self {
        Self {
            network: Arc::new(MemoryNetwork::new(options.clone())),
            services: Arc::new(MemoryServices::new(options)),
            faults: Faults::default(),
            log: Mutex::default(),
            log_capacity,
        }
    }

    /// Returns the logged effects after the one with the number `after`, up to a thousand.
    pub(super) fn effects(&self, after: u64) -> EffectLog {
        lock(&self.log).page(after)
    }

    /// Returns the existing ports of all clusters.
    pub(super) fn ports(&self) -> Vec<MemoryPort> {
        let now = Instant::now();
        self.network.ports().into_iter().map(|port| MemoryPort { vif: port.vif_at(now), ..port }).collect()
    }

    /// Returns the existing load balancers of all clusters.
    pub(super) fn load_balancers(&self) -> Vec<Owned<LoadBalancer>> {
        owned(self.services.load_balancers())
    }

    /// Returns the public addresses that are in use or belong to a user, of all clusters.
    pub(super) fn public_ips(&self) -> Vec<Owned<PublicIp>> {
        owned(self.services.public_ips())
    }

    /// Deserializes the arguments of a call, and returns a closure that executes the call. A change and the log entry of its effect are one
    /// atomic step, even if the client disconnects.
    pub(super) fn read(
        &self,
        origin: CallOrigin,
        arguments: Value,
    ) -> Result<ReadyCall<'_>, serde_json::Error> {
        let (network, services) = (&*self.network, &*self.services);
        let vifs = MemoryVifDriver::new(Arc::clone(&self.network), origin.cluster.clone());
        let balancers = MemoryLoadBalancerDriver::new(Arc::clone(&self.services), origin.cluster.clone());
        let addresses = MemoryPublicIpDriver::new(Arc::clone(&self.services), origin.cluster.clone());
        match origin.method {
            Method::PodProject => {
                call(arguments, |(pod,): (Pod,)| now(PodProjectDriver::project(network, &pod)))
            }
            Method::PodSubnets => {
                call(arguments, |(pod, project): (Pod, ProjectId)| now(network.subnets(&pod, &project)))
            }
            Method::PodSecurityGroups => call(arguments, |(pod, project): (Pod, ProjectId)| {
                now(PodSecurityGroupsDriver::security_groups(network, &pod, &project))
            }),
            Method::RequestVif => call(arguments, move |(request,): (VifRequest,)| {
                let mut log = lock(&self.log);
                let vif = now(vifs.request_vif(&request))?;
                let created = Owned { owner: Some(request.owner), resource: Resource::Port(vif.clone()) };
                self.record(&mut log, &origin, EffectKind::Created, created);
                Ok(vif)
            }),
            Method::ReleaseVif => call(arguments, move |(owner, vif): (Owner, Vif)| {
                self.logged(&origin, || self.port(&vif.id), || now(vifs.release_vif(&owner, &vif)))
            }),
            Method::ActivateVif => {
                call(arguments, move |(owner, vif): (Owner, Vif)| now(vifs.activate_vif(&owner, &vif)))
            }
            Method::ListVifs => {
                call(arguments, move |(owner,): (Option<Owner>,)| now(vifs.vifs(owner.as_ref())))
            }
            Method::ServiceProject => {
                call(arguments, |(service,): (Service,)| now(services.project(&service)))
            }
            Method::ServiceSubnets => call(arguments, |(service, project): (Service, ProjectId)| {
                now(services.subnets(&service, &project))
            }),
            Method::ServiceSecurityGroups => call(arguments, |(service, project): (Service, ProjectId)| {
                now(services.security_groups(&service, &project))
            }),
            Method::ListLoadBalancers => call(arguments, move |(owner,): (Option<Owner>,)| {
                now(balancers.load_balancers(owner.as_ref()))
            }),
            Method::EnsureLoadBalancer => call(arguments, move |(owner, spec): (Owner, LoadBalancerSpec)| {
                let look = || self.load_balancer(&first(now(balancers.load_balancers(Some(&owner))))?.id);
                self.logged(&origin, look, || now(balancers.ensure_load_balancer(&owner, &spec)))
            }),
            Method::GetProgress => {
                call(arguments, move |(found,): (LoadBalancer,)| now(balancers.progress(&found)))
            }
            Method::ReleaseLoadBalancer => call(arguments, move |(owner, id): (Owner, LoadBalancerId)| {
                let release = || now(balancers.release_load_balancer(&owner, &id));
                self.logged(&origin, || self.load_balancer(&id), release)
            }),
            Method::ChangeListener => {
                call(arguments, move |(found, change): (LoadBalancer, ListenerChange)| {
                    let make = || now(balancers.change_listener(&found, &change));
                    self.logged(&origin, || self.load_balancer(&found.id), make)
                })
            }
            Method::ListPublicIps => {
                call(arguments, move |(owner,): (Option<Owner>,)| now(addresses.public_ips(owner.as_ref())))
            }
            Method::AcquirePublicIp => call(arguments, move |(owner, request): (Owner, PublicIpRequest)| {
                let look = || self.public_ip(&first(now(addresses.public_ips(Some(&owner))))?.id);
                self.logged(&origin, look, || now(addresses.acquire(&owner, &request)))
            }),
            Method::AssociatePublicIp => call(arguments, move |(ip, port): (PublicIp, PortId)| {
                self.logged(&origin, || self.public_ip(&ip.id), || now(addresses.associate(&ip, &port)))
            }),
            Method::DisassociatePublicIp => call(arguments, move |(ip, port): (PublicIp, PortId)| {
                self.logged(&origin, || self.public_ip(&ip.id), || now(addresses.disassociate(&ip, &port)))
            }),
            Method::ReleasePublicIp => call(arguments, move |(owner, ip): (Owner, PublicIp)| {
                self.logged(&origin, || self.public_ip(&ip.id), || now(addresses.release(&owner, &ip)))
            }),
        }
    }

    /// Returns the port with this id and its owner, for the log of effects; `None` if it does not exist.
    fn port(&self, id: &VifId) -> Option<Owned<Resource>> {
        let port = self.network.port(id)?;
        Some(Owned { owner: port.owner, resource: Resource::Port(port.vif) })
    }

    /// Returns the load balancer with this id and its owner, for the log of effects, always with the status ACTIVE.
    fn load_balancer(&self, id: &LoadBalancerId) -> Option<Owned<Resource>> {
        let Owned { owner, resource } = self.services.load_balancer(id)?;
        let idle = LoadBalancer { status: ProvisioningStatus::Active, ..resource };
        Some(Owned { owner, resource: Resource::LoadBalancer(idle) })
    }

    /// Returns the public address with this id and its owner, for the log of effects; `None` if it does not exist.
    fn public_ip(&self, id: &PublicIpId) -> Option<Owned<Resource>> {
        let Owned { owner, resource } = self.services.public_ip(id)?;
        Some(Owned { owner, resource: Resource::PublicIp(resource) })
    }

    /// Executes `work`, and logs the difference between the results of `look` before and after it. `look` finds the resource that the call
    /// may change.
    fn logged<A>(
        &self,
        origin: &CallOrigin,
        look: impl Fn() -> Option<Owned<Resource>>,
        work: impl FnOnce() -> A,
    ) -> A {
        let mut log = lock(&self.log);
        let before = look();
        let answer = work();
        match (before, look()) {
            (None, Some(after)) => self.record(&mut log, origin, EffectKind::Created, after),
            (Some(before), None) => self.record(&mut log, origin, EffectKind::Released, before),
            (Some(before), Some(after)) if before.resource != after.resource => {
                self.record(&mut log, origin, EffectKind::Changed, after);
            }
            _ => {}
        }
        answer
    }

    /// Appends an effect on a resource to the log, with the call that caused it. The oldest entries are dropped when the log has reached its
    /// capacity.
    fn record(&self, log: &mut EffectLog, origin: &CallOrigin, effect: EffectKind, found: Owned<Resource>) {
        let (kind, id, addresses) = found.resource.properties();
        let entry = LoggedEffect {
            number: 0, // set by the log
            at: Timestamp::now(),
            call: origin.method,
            request_id: origin.request_id.clone(),
            cluster: origin.cluster.clone(),
            effect,
            kind,
            id: id.to_owned(),
            owner: found.owner,
            addresses,
        };
        log.push(entry, self.log_capacity.get());
    }
}

/// Deserializes `arguments`, and returns a closure that executes `work` with them.
fn call<'a, A: DeserializeOwned + Send + 'a, R: Serialize>(
    arguments: Value,
    work: impl FnOnce(A) -> Result<R, DriverError> + Send + 'a,
) -> Result<ReadyCall<'a>, serde_json::Error> {
    let arguments: A = serde_json::from_value(arguments)?;
    Ok(Box::new(move || {
        let answer = work(arguments)?;
        Ok(serde_json::to_value(answer).expect("results of drivers are plain data"))
    }))
}

/// Returns the result of a driver in memory, which is ready at once.
fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("the drivers in memory wait for nothing but faults, which these do not have")
}

/// Returns the only resource in `found`, since an owner has at most one of each kind; `None` if there is none, or after an error.
fn first<T>(found: Result<Vec<Owned<T>>, DriverError>) -> Option<T> {
    Some(found.ok()?.into_iter().next()?.resource)
}

/// Converts pairs of an owner and a resource.
fn owned<T>(found: Vec<(Option<Owner>, T)>) -> Vec<Owned<T>> {
    found.into_iter().map(|(owner, resource)| Owned { owner, resource }).collect()
}

/// A resource for the log of effects. Parts of its state that change without a call, such as the status, are left out.
#[derive(PartialEq)]
enum Resource {
    /// A port.
    Port(Vif),
    /// A load balancer with its listeners, pools and members.
    LoadBalancer(LoadBalancer),
    /// A public address.
    PublicIp(PublicIp),
}

impl Resource {
    /// Returns the kind, the id and the IP addresses of the resource.
    fn properties(&self) -> (ResourceKind, &str, Vec<IpAddr>) {
        match self {
            Self::Port(vif) => (ResourceKind::Port, vif.id.as_str(), vif.ips().collect()),
            Self::LoadBalancer(found) => (ResourceKind::LoadBalancer, found.id.as_str(), vec![found.vip]),
            Self::PublicIp(ip) => (ResourceKind::PublicIp, ip.id.as_str(), vec![ip.ip]),
        }
    }
}
