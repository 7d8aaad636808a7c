//! The sections `[neutron_defaults]` and `[namespace_subnet]`, and the drivers that return their values.

use crate::error::DriverResult;
use crate::projects::Projects;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::{
    NamespaceProjectDriver, NetworkId, PodProjectDriver, PodSecurityGroupsDriver, ProjectId, SecurityGroupId,
    ServiceProjectDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver, SubnetId,
};

/// The defaults of pods and services in OpenStack. The names are those of the section `[neutron_defaults]` of kuryr.conf, except
/// `projects` and `additional_subnets`, which Kuryr does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NeutronDefaults {
    /// The id of the project of ports, networks and load balancers.
    #[schemars(length(min = 1), example = "0c9f2bd1c2a14f3e9b4d5c0f8f0e9a77")]
    pub project: Option<ProjectId>,
    /// The ids of further projects in which this cluster creates and releases resources. The annotation `openstack.org/kuryr-project` of
    /// a namespace may name one of these or `project`. Resources in other projects never count as those of this cluster, whatever their
    /// descriptions and tags say.
    pub projects: Vec<ProjectId>,
    /// The id of the subnet of pods.
    #[schemars(length(min = 1), example = "5d1a9a2f-8a55-4b51-a1f0-1c2b8f6a1d10")]
    pub pod_subnet: Option<SubnetId>,
    /// The ids of subnets of other projects that pods may use as additional networks, by a `NetworkAttachmentDefinition`. Subnets of the
    /// pod's own project need no entry.
    pub additional_subnets: Vec<SubnetId>,
    /// The id of the subnet of the cluster IPs of services.
    #[schemars(length(min = 1), example = "8b6a1f3c-67ad-4f8e-9c33-2f1d7f0f5b21")]
    pub service_subnet: Option<SubnetId>,
    /// The ids of the security groups of pods and load balancers. None: Neutron's default group.
    pub pod_security_groups: Vec<SecurityGroupId>,
    /// The Open vSwitch bridge of the nodes, for ports whose binding does not name one.
    #[schemars(length(min = 1), example = &"br-int")]
    pub ovs_bridge: Option<String>,
    /// The MTU of pods in bytes; 0 for that of the network.
    #[schemars(range(max = 65535))]
    pub network_device_mtu: u32,
    /// The id of the external network from which services of type `LoadBalancer` get floating IPs. The driver
    /// `neutron_floating_ip` needs it.
    #[schemars(length(min = 1), example = "2f7c9d1b-7f0e-4a53-8f5d-6c0f0b3f9e12")]
    pub external_svc_net: Option<NetworkId>,
    /// The id of the subnet of the floating IPs. Without it, Neutron chooses one.
    #[schemars(length(min = 1), example = "b5b1b9de-53a2-4d0a-a9cb-2f4c7f1f8e33")]
    pub external_svc_subnet: Option<SubnetId>,
}

impl NeutronDefaults {
    /// Returns the projects in which resources may belong to this cluster.
    pub fn all_projects(&self) -> Projects {
        Projects::new(self.project.iter().chain(&self.projects).cloned())
    }
}

/// Options of the driver `namespace` of namespace networks, which creates a network for each namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceSubnetOptions {
    /// The id of the subnet pool of the namespaces' subnets, which have the pool's default size.
    #[schemars(length(min = 1), example = "e3b1cf2e-2e3d-4b8a-8f7d-3c3f0b6c2d55")]
    pub pod_subnet_pool: Option<String>,
    /// The id of the router that connects the subnets of namespaces. Without it, they are not connected.
    #[schemars(length(min = 1), example = "f1a4a9f6-51c7-4d0c-8d52-5a1f9d6f2e0a")]
    pub pod_router: Option<String>,
}

/// The driver `default` of projects: this project for all pods, services and namespaces.
#[derive(Clone, Debug)]
pub struct DefaultProject(pub ProjectId);

#[async_trait]
impl PodProjectDriver for DefaultProject {
    async fn project(&self, _: &Pod) -> DriverResult<ProjectId> {
        Ok(self.0.clone())
    }
}

#[async_trait]
impl ServiceProjectDriver for DefaultProject {
    async fn project(&self, _: &Service) -> DriverResult<ProjectId> {
        Ok(self.0.clone())
    }
}

#[async_trait]
impl NamespaceProjectDriver for DefaultProject {
    async fn project(&self, _: &Namespace) -> DriverResult<ProjectId> {
        Ok(self.0.clone())
    }
}

/// The driver `default` of service subnets: the subnet of the cluster IPs of all services.
#[derive(Clone, Debug)]
pub struct DefaultServiceSubnets(pub SubnetId);

#[async_trait]
impl ServiceSubnetsDriver for DefaultServiceSubnets {
    async fn subnets(&self, _: &Service, _: &ProjectId) -> DriverResult<Vec<SubnetId>> {
        Ok(vec![self.0.clone()])
    }
}

/// The driver `default` of security groups: these groups for all pods or for all services.
#[derive(Clone, Debug)]
pub struct DefaultSecurityGroups(pub Vec<SecurityGroupId>);

#[async_trait]
impl PodSecurityGroupsDriver for DefaultSecurityGroups {
    async fn security_groups(&self, _: &Pod, _: &ProjectId) -> DriverResult<Vec<SecurityGroupId>> {
        Ok(self.0.clone())
    }
}

#[async_trait]
impl ServiceSecurityGroupsDriver for DefaultSecurityGroups {
    async fn security_groups(&self, _: &Service, _: &ProjectId) -> DriverResult<Vec<SecurityGroupId>> {
        Ok(self.0.clone())
    }
}
