//! The contract of a staffetta driver: the driver traits with their types.
//!
//! A driver manages resources of one cloud, device or other external system for the handlers. A handler holds a driver as
//! `Arc<dyn Trait>` and does not know its concrete type; a driver does not call handlers. Every call does one thing. It returns
//! its result, or a [`DriverError`] that says whether the call may be repeated. A driver or handler that listens for clients accepts their
//! connections with [`serve_connections`].
//!
//! A driver marks the resources that it creates with the ids of the cluster and of the Kubernetes object that owns them: see
//! [`Owner`] and [`Owned`]. This ownership mark (in OpenStack a tag or a description) finds a resource again, even if the
//! response to the request that created it was lost.
//!
//! | trait | purpose |
//! |---|---|
//! | [`PodProjectDriver`], [`PodSubnetsDriver`], [`PodSecurityGroupsDriver`] | choose the project, subnets and security groups of a pod |
//! | [`PodVifDriver`] | creates, activates, lists and releases VIFs |
//! | [`VifPoolDriver`], [`VifPoolObserver`] | a [`PodVifDriver`] with a pool, and the events of the cluster that the pool needs |
//! | [`PublishedVifs`] | reads the VIFs in the annotations of pods, for a pool |
//! | [`BulkVifDriver`] | creates, changes, lists and deletes the VIFs of a pool |
//! | [`ServiceProjectDriver`], [`ServiceSubnetsDriver`], [`ServiceSecurityGroupsDriver`] | choose the project, subnets and security groups of a service |
//! | [`NamespaceProjectDriver`], [`NamespaceSubnetDriver`] | choose the project and manage the networks of namespaces |
//! | [`LoadBalancerDriver`], [`ListenerDriver`] | manage load balancers and their listeners |
//! | [`NetworkPolicyDriver`] | manages the security groups of network policies |
//! | [`ServicePublicIpDriver`] | acquires, associates and releases public addresses |
//! | [`AdoptionDriver`] | adopts the resources of another controller, for a migration |
//! | [`VifBindingDriver`] | binds VIFs to pods on a node |
//! | [`AppHostingDriver`](app_hosting::AppHostingDriver) | runs pods on a device that is not a Kubernetes node |
//! | [`Tunnel`](tunnel::Tunnel) | runs containers on machines that announce themselves |
//! | [`PrefixProvider`](prefix::PrefixProvider) | assigns blocks of addresses to the network interface of a node |

mod adoption;
pub mod app_hosting;
mod binding;
mod connections;
mod error;
mod id;
mod load_balancer;
pub mod milliseconds;
mod namespace;
mod network_policy;
mod pod;
pub mod prefix;
mod quantity;
mod request;
mod service;
pub mod tunnel;
mod vif;
mod vif_pool;
pub mod virtual_node;

pub use adoption::{
    Adoption, AdoptionDriver, ExistingAttachment, ExistingLoadBalancer, ExistingMark, ExistingNetwork,
    ExistingPort, ExistingPublicIp, UnusedResource, is_kuryr_policy_group,
};
pub use binding::{VifAttachment, VifBindingDriver, interface_name};
pub use connections::{ConnectionLimits, serve_connections};
pub use error::{DriverError, Reason};
pub use id::{
    ClusterId, ContainerKey, GroupName, InstanceId, InterfaceId, ListenerId, LoadBalancerId, MemberId,
    NetworkId, Owned, Owner, PoolId, PortId, ProjectId, PublicIpId, SecurityGroupId, SecurityRuleId,
    SubnetId, Uid, VifId,
};
pub use load_balancer::{
    Algorithm, HealthMonitor, Listener, ListenerChange, ListenerDriver, ListenerPort, ListenerSettings,
    ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerProgress, LoadBalancerSpec, Member,
    MemberSpec, NormalizedSpec, Pool, PoolSettings, PoolSpec, Protocol, ProvisioningStatus,
    SessionPersistence,
};
pub use namespace::{
    NAMESPACE_NETWORK, NamespaceNetwork, NamespaceObserver, NamespaceProjectDriver, NamespaceSubnetDriver,
};
pub use network_policy::{
    Direction, ExistingRule, IpFamily, NetworkPolicyDriver, NetworkPolicyObserver, ProtocolPorts, Remote,
    RuleChange, SecurityGroup, SecurityRule, VifSecurityGroups,
};
pub use pod::{
    Activation, PodLifecycle, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver,
    VifRequest,
};
pub use quantity::ExactQuantity;
pub use request::{
    Fence, LoggedRequest, NoopRequestObserver, RequestLog, RequestObserver, RequestOutcome, RequestRecord,
    count_listed, page_listed,
};
pub use service::{
    Allocation, PublicIp, PublicIpRequest, ServiceProjectDriver, ServicePublicIpDriver,
    ServiceSecurityGroupsDriver, ServiceSubnetsDriver,
};
pub use vif::{
    MacAddress, Network, ParseMacAddressError, PortProfile, Route, Subnet, SubnetAddresses, Vif, VifBinding,
    VifClass, addresses_of,
};
pub use vif_pool::{
    BulkVifDriver, BulkVifRequest, BulkVifResult, NodeInfo, PoolClaim, PooledVif, PooledVifList,
    PublishedVifs, VifPoolDriver, VifPoolKey, VifPoolObserver,
};
