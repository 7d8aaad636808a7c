//! The simulated cloud of a server. It passes calls to the drivers `memory`, and logs the resources that they create, change and release.

use std::sync::Arc;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
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
use crate::{
    Faults, MemoryLoadBalancerDriver, MemoryNetwork, MemoryOptions, MemoryPort, MemoryPublicIpDriver,
    MemoryServices, MemoryVifDriver,
};

/// The simulated cloud of a server, with its planned faults and its log of created, changed and released resources.
pub(super) struct ServedCloud {
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    /// The faults that are planned for later calls.
    pub(super) faults: Faults<Method>,
    /// The log of created, changed and released resources. It is locked during a call that changes something, so its order is that of the
    /// changes.
    log: Mutex<EffectLog>,
}

/// A call whose arguments have been deserialized. Calling the closure executes it.
pub(super) type ReadyCall<'a> = Box<dyn FnOnce() -> Result<Value, DriverError> + Send + 'a>;

impl ServedCloud {
    /// Creates an empty cloud.
    pub(super) fn new(options: MemoryOptions) -> Self {
        Self {
            network: Arc::new(MemoryNetwork::new(options.clone())),
            services: Arc::new(MemoryServices::new(options)),
            faults: Faults::default(),
            log: Mutex::default(),
        }
    }

    /// Returns the log of the resources that calls have created, changed and released so far.
    pub(super) fn effects(&self) -> EffectLog {
        self.log.lock().clone()
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

    /// Deserializes the arguments of a call for `cluster`, and returns a closure that executes the call. A change and the log entry of its
    /// effect, with the id that the client gave the request, are one atomic step, even if the client disconnects.
    pub(super) fn read(
        &self,
        method: Method,
        cluster: &ClusterId,
        request_id: Option<String>,
        arguments: Value,
    ) -> Result<ReadyCall<'_>, serde_json::Error> {
        let (network, services) = (&*self.network, &*self.services);
        let vifs = MemoryVifDriver::new(Arc::clone(&self.network), cluster.clone());
        let balancers = MemoryLoadBalancerDriver::new(Arc::clone(&self.services), cluster.clone());
        let addresses = MemoryPublicIpDriver::new(Arc::clone(&self.services), cluster.clone());
        match method {
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
                let look = |vif: Option<&Vif>| self.port(&vif?.id);
                self.log_change(request_id, look, || now(vifs.request_vif(&request)))
            }),
            Method::ReleaseVif => call(arguments, move |(owner, vif): (Owner, Vif)| {
                self.log_change(request_id, |_| self.port(&vif.id), || now(vifs.release_vif(&owner, &vif)))
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
                let look = |_: Option<&_>| {
                    self.load_balancer(&first(now(balancers.load_balancers(Some(&owner))))?.id)
                };
                self.log_change(request_id, look, || now(balancers.ensure_load_balancer(&owner, &spec)))
            }),
            Method::GetProgress => {
                call(arguments, move |(found,): (LoadBalancer,)| now(balancers.progress(&found)))
            }
            Method::ReleaseLoadBalancer => call(arguments, move |(owner, id): (Owner, LoadBalancerId)| {
                let release = || now(balancers.release_load_balancer(&owner, &id));
                self.log_change(request_id, |_| self.load_balancer(&id), release)
            }),
            Method::ChangeListener => {
                call(arguments, move |(found, change): (LoadBalancer, ListenerChange)| {
                    let make = || now(balancers.change_listener(&found, &change));
                    self.log_change(request_id, |_| self.load_balancer(&found.id), make)
                })
            }
            Method::ListPublicIps => {
                call(arguments, move |(owner,): (Option<Owner>,)| now(addresses.public_ips(owner.as_ref())))
            }
            Method::AcquirePublicIp => call(arguments, move |(owner, request): (Owner, PublicIpRequest)| {
                let look =
                    |_: Option<&_>| self.public_ip(&first(now(addresses.public_ips(Some(&owner))))?.id);
                self.log_change(request_id, look, || now(addresses.acquire(&owner, &request)))
            }),
            Method::AssociatePublicIp => call(arguments, move |(ip, port): (PublicIp, PortId)| {
                self.log_change(
                    request_id,
                    |_| self.public_ip(&ip.id),
                    || now(addresses.associate(&ip, &port)),
                )
            }),
            Method::DisassociatePublicIp => call(arguments, move |(ip, port): (PublicIp, PortId)| {
                self.log_change(
                    request_id,
                    |_| self.public_ip(&ip.id),
                    || now(addresses.disassociate(&ip, &port)),
                )
            }),
            Method::ReleasePublicIp => call(arguments, move |(owner, ip): (Owner, PublicIp)| {
                self.log_change(
                    request_id,
                    |_| self.public_ip(&ip.id),
                    || now(addresses.release(&owner, &ip)),
                )
            }),
        }
    }

    /// Returns the current state of the port with this id, to find out if a call changes it; `None` if the port does not exist.
    fn port(&self, id: &VifId) -> Option<ObservedResource> {
        let port = self.network.port(id)?;
        Some(ObservedResource::new(ResourceKind::Port, id.as_str(), port.owner, &port.vif))
    }

    /// Returns the current state of the load balancer with this id, to find out if a call changes it; `None` if it does not exist.
    fn load_balancer(&self, id: &LoadBalancerId) -> Option<ObservedResource> {
        let Owned { owner, resource } = self.services.load_balancer(id)?;
        let idle = LoadBalancer { status: ProvisioningStatus::Active, ..resource };
        Some(ObservedResource::new(ResourceKind::LoadBalancer, id.as_str(), owner, &idle))
    }

    /// Returns the current state of the public address with this id, to find out if a call changes it; `None` if it does not exist.
    fn public_ip(&self, id: &PublicIpId) -> Option<ObservedResource> {
        let Owned { owner, resource } = self.services.public_ip(id)?;
        Some(ObservedResource::new(ResourceKind::PublicIp, id.as_str(), owner, &resource))
    }

    /// Executes `work`, a call of a driver, and adds a log entry if the call created, changed or released the resource whose state `look`
    /// returns before and after it. The argument of `look` is the result of the call; `None` before the call, or if it failed.
    fn log_change<R>(
        &self,
        request_id: Option<String>,
        look: impl Fn(Option<&R>) -> Option<ObservedResource>,
        work: impl FnOnce() -> Result<R, DriverError>,
    ) -> Result<R, DriverError> {
        let mut log = self.log.lock();
        let before = look(None);
        let answer = work();
        let (effect, observed) = match (before, look(answer.as_ref().ok())) {
            (None, Some(after)) => (EffectKind::Created, after),
            (Some(before), None) => (EffectKind::Released, before),
            (Some(before), Some(after)) if before.state != after.state => (EffectKind::Changed, after),
            _ => return answer,
        };
        let ObservedResource { kind, id, owner, .. } = observed;
        log.0.push(LoggedEffect { request_id, effect, kind, id, owner });
        answer
    }
}

/// Deserializes `arguments`, and returns a closure that executes `work` with them.
fn call<'a, A: DeserializeOwned + Send + 'a, R: Serialize>(
    arguments: Value,
    work: impl FnOnce(A) -> Result<R, DriverError> + Send + 'a,
) -> Result<ReadyCall<'a>, serde_json::Error> {
    let arguments: A = serde_json::from_value(arguments)?;
    Ok(Box::new(move || Ok(to_json(&work(arguments)?))))
}

/// Converts a resource or the result of a driver to JSON.
fn to_json(data: &impl Serialize) -> Value {
    serde_json::to_value(data).expect("it is plain data")
}

/// Polls the call `answer` of a driver in memory once, and returns its result. Panics if the call waits, which these calls never do.
fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("the drivers in memory wait for nothing but faults, which these do not have")
}

/// Returns the only resource in `found`, since an owner has at most one of each kind; `None` if there is none, or after an error.
fn first<T>(found: Result<Vec<Owned<T>>, DriverError>) -> Option<T> {
    Some(found.ok()?.into_iter().next()?.resource)
}

/// Converts pairs of an owner (`None` for a resource without one) and a resource to [`Owned`] resources.
fn owned<T>(found: Vec<(Option<Owner>, T)>) -> Vec<Owned<T>> {
    found.into_iter().map(|(owner, resource)| Owned { owner, resource }).collect()
}

/// The state of a resource at one moment. A comparison of the states before and after a call shows if the call changed it.
struct ObservedResource {
    kind: ResourceKind,
    id: String,
    owner: Option<Owner>,
    /// The resource as JSON, except for properties that change without a call, such as the provisioning status.
    state: Value,
}

impl ObservedResource {
    /// Creates the record of a resource that is in this state.
    fn new(kind: ResourceKind, id: &str, owner: Option<Owner>, state: &impl Serialize) -> Self {
        Self { kind, id: id.to_owned(), owner, state: to_json(state) }
    }
}
