//! The contract of a staffetta driver: the traits, the things they make, and in-memory drivers.
//!
//! A driver does in the other world what a handler asks for. Handlers hold a driver as `Arc<dyn Trait>` and never know
//! which one it is; a driver knows no handler and never waits: it does one thing, and answers what came of it, or with a
//! [`DriverError`] that says whether to ask again.
//!
//! | trait | what it answers |
//! |---|---|
//! | [`PodProjectDriver`] | to which project a pod belongs |
//! | [`PodSubnetsDriver`] | in which subnets a pod gets its addresses |
//! | [`PodSecurityGroupsDriver`] | which security groups guard a pod |
//! | [`PodVifDriver`] | makes, activates, finds and releases VIFs |
//! | [`VifPoolDriver`] | the same, in front of a [`PodVifDriver`] |
//! | [`PoolLedger`] | what such a pool must be told of the cluster |
//! | [`VifStock`] | makes, changes, lists and destroys VIFs for nobody yet, on which a pool stands |
//! | [`ServiceProjectDriver`], [`ServiceSubnetsDriver`], [`ServiceSecurityGroupsDriver`] | the same questions of a service |
//! | [`NamespaceProjectDriver`] | to which project a namespace belongs |
//! | [`NamespaceSubnetDriver`] | makes, finds and releases the networks of namespaces |
//! | [`LoadBalancerDriver`] | makes, changes, finds and releases load balancers |
//! | [`NetworkPolicyDriver`] | makes, changes, finds and removes the security groups of network policies |
//! | [`ServicePublicIpDriver`] | acquires, associates and releases public addresses |
//! | [`AppHostingDriver`](app_hosting::AppHostingDriver) | runs pods on a device that is no Kubernetes node |
//!
//! What any machine that stands for a node is asked and answers of pods is in [`virtual_node`].
//!
//! What drivers ask of their other worlds, a [`RequestObserver`] learns.
//!
//! What Kubernetes calls a quantity, an [`Amount`] reads.
//!
//! What network policies mean in the words of security groups, [`policy`] reckons.
//!
//! [`rehearsal`] has a driver for each trait that changes something, which plans the changes of another one.

pub mod app_hosting;
mod error;
mod id;
mod life;
mod load_balancer;
mod load_balancer_driver;
mod load_balancer_settings;
pub mod memory;
mod milliseconds;
mod multi_pool;
mod namespace_observer;
mod namespace_project;
mod namespace_subnet;
mod network;
mod network_policy_driver;
mod network_policy_observer;
mod nodes;
mod noop;
mod owner;
mod pod_project;
mod pod_security_groups;
mod pod_subnets;
mod pod_vif;
pub mod policy;
mod pool_ledger;
mod pooled;
mod quantity;
pub mod rehearsal;
mod request_observer;
mod security_group;
mod service_project;
mod service_public_ip;
mod service_security_groups;
mod service_subnets;
mod stock;
mod vif;
mod vif_pool;
pub mod virtual_node;
pub mod warm_pool;

pub use error::{DriverError, Reason};
pub use id::{
    ClusterId, GroupName, ListenerId, LoadBalancerId, MemberId, NetworkId, PoolId, PortId, ProjectId,
    PublicIpId, SecurityGroupId, SecurityRuleId, SubnetId, Uid, VifId,
};
pub use life::Life;
pub use load_balancer::{
    Feasible, Listener, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec,
    NotAProtocol, Pool, PoolSpec, Progress, Protocol, Provisioning,
};
pub use load_balancer_driver::LoadBalancerDriver;
pub use load_balancer_settings::{
    Algorithm, HealthMonitor, ListenerSettings, NotAnAlgorithm, PoolSettings, SessionPersistence,
};
pub use multi_pool::MultiPool;
pub use namespace_observer::NamespaceObserver;
pub use namespace_project::NamespaceProjectDriver;
pub use namespace_subnet::{NAMESPACE_NETWORK, NamespaceNetwork, NamespaceSubnetDriver};
pub use network::{Network, Route, Subnet, SubnetAddresses};
pub use network_policy_driver::NetworkPolicyDriver;
pub use network_policy_observer::NetworkPolicyObserver;
pub use nodes::{NodeFacts, Nodes};
pub use noop::NoopPool;
pub use owner::{Marked, Owner};
pub use pod_project::PodProjectDriver;
pub use pod_security_groups::PodSecurityGroupsDriver;
pub use pod_subnets::PodSubnetsDriver;
pub use pod_vif::{Activation, PodVifDriver, VifRequest};
pub use pool_ledger::PoolLedger;
pub use pooled::{MayAct, PoolFigures, PoolPolicy, PooledVifs};
pub use quantity::Amount;
pub use request_observer::{RequestObserver, RequestOutcome, Unobserved};
pub use security_group::{
    Direction, Family, Guarded, HeldRule, Ports, Remote, RuleChange, SecurityGroup, SecurityRule,
};
pub use service_project::ServiceProjectDriver;
pub use service_public_ip::{Allocation, PublicIp, PublicIpRequest, ServicePublicIpDriver};
pub use service_security_groups::ServiceSecurityGroupsDriver;
pub use service_subnets::ServiceSubnetsDriver;
pub use stock::{StockKey, StockList, StockMade, StockOrder, Stocked, VifStock};
pub use vif::{MacAddress, PortProfile, Vif, VifClass};
pub use vif_pool::VifPoolDriver;
