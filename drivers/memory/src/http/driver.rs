//! The drivers named `simulated`. Each method sends one request to a simulated cloud in another process.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_driver::{
    Activation, ClusterId, DriverError, ListenerChange, ListenerDriver, LoadBalancer, LoadBalancerDriver,
    LoadBalancerId, LoadBalancerProgress, LoadBalancerSpec, Owned, Owner, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, PortId, ProjectId, PublicIp, PublicIpRequest,
    SecurityGroupId, ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, Subnet, SubnetId, Vif, VifPoolDriver, VifRequest,
};

use super::CallBody;
use super::client::Client;
use super::method::Method;

/// The drivers named `simulated` of one cluster, for a simulated cloud in another process.
///
/// If the response to a call is lost and the call may have taken effect, its error is [ambiguous](DriverError::ambiguous). No call is
/// repeated. Every error names the id of its request, which the [`EffectLog`](super::EffectLog) contains too.
#[derive(Clone, Debug)]
pub struct SimulatedDriver {
    client: Client,
    cluster: ClusterId,
}

impl Client {
    /// Creates the drivers of the cluster with this id.
    pub fn driver(&self, cluster: ClusterId) -> SimulatedDriver {
        SimulatedDriver { client: self.clone(), cluster }
    }
}

impl SimulatedDriver {
    /// Calls a method of a driver on the server. `arguments` contains its arguments in their order.
    async fn call<R: DeserializeOwned>(
        &self,
        method: Method,
        arguments: impl Serialize,
    ) -> Result<R, DriverError> {
        let body = CallBody { cluster: self.cluster.clone(), arguments };
        self.client.post(&format!("v1/{method}"), &body, method.step()).await
    }
}

#[async_trait]
impl PodProjectDriver for SimulatedDriver {
    async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError> {
        self.call(Method::PodProject, (pod,)).await
    }
}

#[async_trait]
impl PodSubnetsDriver for SimulatedDriver {
    async fn subnets(&self, pod: &Pod, project: &ProjectId) -> Result<Vec<Subnet>, DriverError> {
        self.call(Method::PodSubnets, (pod, project)).await
    }
}

#[async_trait]
impl PodSecurityGroupsDriver for SimulatedDriver {
    async fn security_groups(
        &self,
        pod: &Pod,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError> {
        self.call(Method::PodSecurityGroups, (pod, project)).await
    }
}

#[async_trait]
impl PodVifDriver for SimulatedDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.call(Method::RequestVif, (request,)).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.call(Method::ReleaseVif, (owner, vif)).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        self.call(Method::ActivateVif, (owner, vif)).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.call(Method::ListVifs, (owner,)).await
    }
}

/// The simulated cloud has no VIF pool: each VIF is a new port.
impl VifPoolDriver for SimulatedDriver {}

#[async_trait]
impl ServiceProjectDriver for SimulatedDriver {
    async fn project(&self, service: &Service) -> Result<ProjectId, DriverError> {
        self.call(Method::ServiceProject, (service,)).await
    }
}

#[async_trait]
impl ServiceSubnetsDriver for SimulatedDriver {
    async fn subnets(&self, service: &Service, project: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        self.call(Method::ServiceSubnets, (service, project)).await
    }
}

#[async_trait]
impl ServiceSecurityGroupsDriver for SimulatedDriver {
    async fn security_groups(
        &self,
        service: &Service,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError> {
        self.call(Method::ServiceSecurityGroups, (service, project)).await
    }
}

#[async_trait]
impl LoadBalancerDriver for SimulatedDriver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.call(Method::ListLoadBalancers, (owner,)).await
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        self.call(Method::EnsureLoadBalancer, (owner, spec)).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        self.call(Method::GetProgress, (load_balancer,)).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        self.call(Method::ReleaseLoadBalancer, (owner, id)).await
    }
}

#[async_trait]
impl ListenerDriver for SimulatedDriver {
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        self.call(Method::ChangeListener, (load_balancer, change)).await
    }
}

#[async_trait]
impl ServicePublicIpDriver for SimulatedDriver {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError> {
        self.call(Method::ListPublicIps, (owner,)).await
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        self.call(Method::AcquirePublicIp, (owner, request)).await
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        self.call(Method::AssociatePublicIp, (public_ip, port)).await
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        self.call(Method::DisassociatePublicIp, (public_ip, port)).await
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        self.call(Method::ReleasePublicIp, (owner, public_ip)).await
    }
}
