//! The drivers named `simulated`: each method is one request.

use std::borrow::Cow::{Borrowed, Owned};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Service};
use staffetta_driver::{
    Activation, ClusterId, DriverError, Listener, ListenerSpec, LoadBalancer, LoadBalancerDriver,
    LoadBalancerId, LoadBalancerSpec, Marked, Member, MemberSpec, Owner, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, PoolId, PortId, Progress, ProjectId, PublicIp,
    PublicIpRequest, SecurityGroupId, ServiceProjectDriver, ServicePublicIpDriver,
    ServiceSecurityGroupsDriver, ServiceSubnetsDriver, Subnet, SubnetId, Vif, VifPoolDriver, VifRequest,
};

use super::Client;
use crate::method::Method;
use crate::wire;

/// Every driver of one cluster, in a simulated network of another process.
///
/// A call that may have been done without an answer fails as [ambiguous](DriverError::ambiguous); nothing is repeated here.
/// Every error names the id of its request, by which the ledger knows it.
#[derive(Clone, Debug)]
pub struct SimulatedDriver {
    client: Client,
    cluster: ClusterId,
}

impl SimulatedDriver {
    pub(super) fn new(client: Client, cluster: ClusterId) -> Self {
        Self { client, cluster }
    }

    async fn call<C: wire::Call>(&self, method: Method, arguments: C) -> Result<C::Answer, DriverError> {
        self.client.call(&self.cluster, method, arguments).await
    }
}

#[async_trait]
impl PodProjectDriver for SimulatedDriver {
    async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError> {
        self.call(Method::PodProject, wire::ProjectOfPod { pod: Borrowed(pod) }).await
    }
}

#[async_trait]
impl PodSubnetsDriver for SimulatedDriver {
    async fn subnets(&self, pod: &Pod, project: &ProjectId) -> Result<Vec<Subnet>, DriverError> {
        let arguments = wire::SubnetsOfPod { pod: Borrowed(pod), project: Borrowed(project) };
        self.call(Method::PodSubnets, arguments).await
    }
}

#[async_trait]
impl PodSecurityGroupsDriver for SimulatedDriver {
    async fn security_groups(
        &self,
        pod: &Pod,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError> {
        let arguments = wire::SecurityGroupsOfPod { pod: Borrowed(pod), project: Borrowed(project) };
        self.call(Method::PodSecurityGroups, arguments).await
    }
}

#[async_trait]
impl PodVifDriver for SimulatedDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.call(Method::RequestVif, wire::RequestVif { request: Borrowed(request) }).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let arguments = wire::ReleaseVif { owner: Borrowed(owner), vif: Borrowed(vif) };
        self.call(Method::ReleaseVif, arguments).await
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.call(Method::ActivateVif, wire::ActivateVif { vif: Borrowed(vif) }).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        self.call(Method::ListVifs, wire::Vifs { owner: Owned(owner.cloned()) }).await
    }
}

/// The network keeps no VIFs ready: its pool asks for a port each time.
#[async_trait]
impl VifPoolDriver for SimulatedDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.call(Method::PoolRequestVif, wire::RequestVif { request: Borrowed(request) }).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let arguments = wire::ReleaseVif { owner: Borrowed(owner), vif: Borrowed(vif) };
        self.call(Method::PoolReleaseVif, arguments).await
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.call(Method::PoolActivateVif, wire::ActivateVif { vif: Borrowed(vif) }).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        self.call(Method::PoolListVifs, wire::Vifs { owner: Owned(owner.cloned()) }).await
    }
}

#[async_trait]
impl ServiceProjectDriver for SimulatedDriver {
    async fn project(&self, service: &Service) -> Result<ProjectId, DriverError> {
        self.call(Method::ServiceProject, wire::ProjectOfService { service: Borrowed(service) }).await
    }
}

#[async_trait]
impl ServiceSubnetsDriver for SimulatedDriver {
    async fn subnets(&self, service: &Service, project: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        let arguments = wire::SubnetsOfService { service: Borrowed(service), project: Borrowed(project) };
        self.call(Method::ServiceSubnets, arguments).await
    }
}

#[async_trait]
impl ServiceSecurityGroupsDriver for SimulatedDriver {
    async fn security_groups(
        &self,
        service: &Service,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError> {
        let arguments =
            wire::SecurityGroupsOfService { service: Borrowed(service), project: Borrowed(project) };
        self.call(Method::ServiceSecurityGroups, arguments).await
    }
}

#[async_trait]
impl LoadBalancerDriver for SimulatedDriver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        self.call(Method::ListLoadBalancers, wire::LoadBalancers { owner: Owned(owner.cloned()) }).await
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let arguments = wire::EnsureLoadBalancer { owner: Borrowed(owner), spec: Borrowed(spec) };
        self.call(Method::EnsureLoadBalancer, arguments).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<Progress, DriverError> {
        let arguments = wire::LoadBalancerProgress { load_balancer: Borrowed(load_balancer) };
        self.call(Method::LoadBalancerProgress, arguments).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        let arguments = wire::ReleaseLoadBalancer { owner: Borrowed(owner), id: Borrowed(id) };
        self.call(Method::ReleaseLoadBalancer, arguments).await
    }

    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        let arguments = wire::EnsureListener { load_balancer: Borrowed(load_balancer), spec: Borrowed(spec) };
        self.call(Method::EnsureListener, arguments).await
    }

    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        let arguments =
            wire::ReleaseListener { load_balancer: Borrowed(load_balancer), listener: Borrowed(listener) };
        self.call(Method::ReleaseListener, arguments).await
    }

    async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        let arguments = wire::SetMembers {
            load_balancer: Borrowed(load_balancer),
            pool: Borrowed(pool),
            members: Borrowed(members),
        };
        self.call(Method::SetMembers, arguments).await
    }
}

#[async_trait]
impl ServicePublicIpDriver for SimulatedDriver {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Marked<PublicIp>>, DriverError> {
        self.call(Method::ListPublicIps, wire::PublicIps { owner: Owned(owner.cloned()) }).await
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        let arguments = wire::AcquirePublicIp { owner: Borrowed(owner), request: Borrowed(request) };
        self.call(Method::AcquirePublicIp, arguments).await
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let arguments = wire::AssociatePublicIp { public_ip: Borrowed(public_ip), port: Borrowed(port) };
        self.call(Method::AssociatePublicIp, arguments).await
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let arguments = wire::DisassociatePublicIp { public_ip: Borrowed(public_ip), port: Borrowed(port) };
        self.call(Method::DisassociatePublicIp, arguments).await
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        let arguments = wire::ReleasePublicIp { owner: Borrowed(owner), public_ip: Borrowed(public_ip) };
        self.call(Method::ReleasePublicIp, arguments).await
    }
}
