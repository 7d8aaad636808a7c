//! The adoption of resources that another controller created, for a migration from that controller.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{
    LoadBalancerId, NetworkId, Owner, PortId, ProjectId, PublicIpId, SecurityGroupId, SubnetId, Uid, VifId,
};

/// The ownership mark of a resource that a migration may adopt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExistingMark {
    /// The resource has no mark: another controller or a user created it.
    Unmarked,
    /// The mark is that of this cluster and names this owner.
    Owned(Owner),
    /// The mark is that of another cluster or of a pool of this cluster.
    Foreign,
}

/// A port that exists in the cloud and serves a pod or a pool of ports, whoever created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingPort {
    /// The id of the port in the cloud.
    pub id: VifId,
    /// The MAC address, in lower case.
    pub mac_address: String,
    /// The IP addresses of the port, one per subnet.
    pub ips: Vec<IpAddr>,
    /// `true` if the cloud forwards the traffic of the port (in Neutron: status `ACTIVE`).
    pub active: bool,
    /// The UID of the pod that the port names outside of the ownership mark (in Neutron: `device_id`), as Kuryr's ports do; `None` if it
    /// names none, as a port of a pool.
    pub pod: Option<Uid>,
    /// The ids of the subnets of the port.
    pub subnets: Vec<SubnetId>,
    /// The way in which the port is attached to a node.
    pub attachment: ExistingAttachment,
    /// The ids of the security groups of the port.
    pub security_groups: Vec<SecurityGroupId>,
    /// The ownership mark of the port, if it has one.
    pub mark: ExistingMark,
}

/// The attachment of an [`ExistingPort`] to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExistingAttachment {
    /// The port is bound on the node with this name.
    Host(String),
    /// The port is a subport of a node's trunk.
    Trunk {
        /// The id of the trunk.
        id: String,
        /// The VLAN id of the subport on the trunk.
        vlan: u16,
        /// The addresses of the node.
        node_ips: Vec<IpAddr>,
    },
    /// The port is attached through the port of a node, whose allowed address pairs contain the addresses of this port (nested macvlan).
    AllowedPair {
        /// The id of the node's own port.
        port: PortId,
        /// The addresses of the node.
        node_ips: Vec<IpAddr>,
    },
    /// The port is attached to no node that the driver knows.
    Nothing,
}

/// A load balancer that exists in the cloud, whoever created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingLoadBalancer {
    /// The id of the load balancer in the cloud.
    pub id: LoadBalancerId,
    /// The name of the load balancer; Kuryr and this controller use `namespace/service`.
    pub name: String,
    /// The project to which the load balancer belongs.
    pub project: ProjectId,
    /// The virtual IP address at which the load balancer accepts connections; `None` if it has none yet.
    pub vip: Option<IpAddr>,
    /// The subnet of the virtual IP address; `None` if the cloud reports none.
    pub subnet: Option<SubnetId>,
    /// The port that has the virtual IP address; `None` if the cloud reports none.
    pub port: Option<PortId>,
    /// The ownership mark of the load balancer, if it has one.
    pub mark: ExistingMark,
}

/// A public address (in OpenStack a floating IP) that exists in the cloud, whoever allocated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingPublicIp {
    /// The id of the public address in the cloud.
    pub id: PublicIpId,
    /// The public address itself.
    pub ip: IpAddr,
    /// The port with which the address is associated; `None` if there is none.
    pub port: Option<PortId>,
    /// The ownership mark of the public address, if it has one.
    pub mark: ExistingMark,
}

/// A network that exists in the cloud, whoever created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingNetwork {
    /// The id of the network in the cloud.
    pub id: NetworkId,
    /// The name of the network; Kuryr derives it from the namespace.
    pub name: String,
    /// The ids of the subnets of the network.
    pub subnets: Vec<SubnetId>,
    /// The ownership mark of the network, if it has one.
    pub mark: ExistingMark,
}

/// A step of a migration: a resource of another controller, and the Kubernetes object whose ownership mark the resource gets.
/// Nothing else that affects the traffic of the resource is changed: neither the addresses, nor the attachment, nor the security
/// groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adoption {
    /// The port of a pod, which gets the ownership mark of the pod.
    Port {
        /// The port, as it was listed. If its pod, addresses or attachment have changed, the adoption fails.
        port: Box<ExistingPort>,
        /// The IP address of the pod's node (`status.hostIP`); required unless the port is attached as [`ExistingAttachment::Host`].
        host: Option<IpAddr>,
        /// The pod, which the ownership mark of the port will name.
        owner: Owner,
    },
    /// The load balancer of a service, and the service whose ownership mark it gets.
    LoadBalancer(LoadBalancerId, Owner),
    /// The public address of a service, and the service whose ownership mark it gets.
    PublicIp(PublicIpId, Owner),
    /// The network of a namespace, its subnet, and the namespace whose ownership mark it gets.
    Network(NetworkId, SubnetId, Owner),
}

/// Returns `true` if a security group with this description may be that of the network policy `policy` (`NAMESPACE/NAME`) in Kuryr. Groups
/// of older releases have a description without a name, which matches every policy.
pub fn is_kuryr_policy_group(description: &str, policy: &str) -> bool {
    description == "Kuryr-Kubernetes NetPolicy SG"
        || description == format!("Kuryr-Kubernetes Network Policy {policy} SG")
}

/// A resource of another controller that nothing uses any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnusedResource {
    /// A port that a pool of Kuryr kept ready, and that no pod uses.
    Port(VifId),
    /// A security group that Kuryr created, and the name `NAMESPACE/NAME` of its network policy. It is deleted only if its description
    /// is [that of a group of this policy](is_kuryr_policy_group).
    SecurityGroup(SecurityGroupId, String),
}

/// Lists the resources in the projects of this cluster, adopts those that another controller created, and deletes those of Kuryr that
/// nothing uses any more, for a migration.
///
/// Lists contain only resources in the projects of the configuration. Every method is idempotent. A resource with the mark of another
/// owner or cluster is never changed or deleted; the mark of a network counts for its subnet too.
#[async_trait]
pub trait AdoptionDriver: Send + Sync {
    /// Lists the ports of pods and of pools of ports, whoever created them.
    async fn ports(&self) -> Result<Vec<ExistingPort>, DriverError>;

    /// Lists the load balancers, whoever created them.
    async fn load_balancers(&self) -> Result<Vec<ExistingLoadBalancer>, DriverError>;

    /// Lists the public addresses, whoever allocated them.
    async fn public_ips(&self) -> Result<Vec<ExistingPublicIp>, DriverError>;

    /// Lists the networks, whoever created them.
    async fn networks(&self) -> Result<Vec<ExistingNetwork>, DriverError>;

    /// Gives a resource the ownership mark of its owner. It fails with [`Reason::Refused`](crate::Reason::Refused) if the resource has
    /// the mark of another owner, and with [`Reason::NotFound`](crate::Reason::NotFound) if it does not exist.
    async fn adopt(&self, adoption: &Adoption) -> Result<(), DriverError>;

    /// Deletes a resource without an ownership mark. It fails if the resource is in use, or was not created by Kuryr. A resource that
    /// does not exist counts as deleted.
    async fn delete(&self, resource: &UnusedResource) -> Result<(), DriverError>;
}
