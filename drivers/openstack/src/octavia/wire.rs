//! Load balancers, listeners, pools and members, as Octavia writes and reads them. The fields are those of its API reference.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use staffetta_driver::{
    ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId,
};

use crate::cloud::or_default;

/// The state of a load balancer or a member that is being deleted.
pub(super) const GOING: &str = "PENDING_DELETE";

/// A load balancer as it is read. The answer to its creation has all that hangs on it; others have just ids there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancerTold {
    pub(super) id: LoadBalancerId,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) project_id: ProjectId,
    #[serde(deserialize_with = "or_default")]
    pub(super) description: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    pub(super) provisioning_status: String,
    pub(super) vip_address: Option<IpAddr>,
    pub(super) vip_subnet_id: Option<SubnetId>,
    pub(super) vip_port_id: Option<PortId>,
    #[serde(deserialize_with = "or_default")]
    pub(super) vip_sg_ids: Vec<SecurityGroupId>,
    pub(super) provider: Option<String>,
    pub(super) admin_state_up: Option<bool>,
    pub(super) listeners: Vec<ListenerTold>,
    pub(super) pools: Vec<PoolTold>,
}

/// The fields of a load balancer without what hangs on it.
pub(super) const LOAD_BALANCER_FIELDS: [&str; 12] = [
    "id",
    "name",
    "project_id",
    "description",
    "tags",
    "provisioning_status",
    "vip_address",
    "vip_subnet_id",
    "vip_port_id",
    "vip_sg_ids",
    "provider",
    "admin_state_up",
];

/// A listener as it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListenerTold {
    pub(super) id: ListenerId,
    pub(super) protocol: String,
    pub(super) protocol_port: u16,
    pub(super) default_pool_id: Option<PoolId>,
    pub(super) timeout_client_data: Option<u32>,
    pub(super) timeout_member_data: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub(super) allowed_cidrs: Vec<IpNet>,
    pub(super) admin_state_up: Option<bool>,
    pub(super) loadbalancers: Vec<IdTold<LoadBalancerId>>,
}

pub(super) const LISTENER_FIELDS: [&str; 9] = [
    "id",
    "protocol",
    "protocol_port",
    "default_pool_id",
    "timeout_client_data",
    "timeout_member_data",
    "allowed_cidrs",
    "admin_state_up",
    "loadbalancers",
];

/// A pool as it is read. Only the answer to the creation of a load balancer has more of its members than their ids, and has
/// its monitor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolTold {
    pub(super) id: PoolId,
    pub(super) protocol: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) lb_algorithm: String,
    pub(super) session_persistence: Option<PersistenceTold>,
    pub(super) healthmonitor_id: Option<String>,
    pub(super) healthmonitor: Option<MonitorTold>,
    pub(super) admin_state_up: Option<bool>,
    pub(super) members: Vec<MemberTold>,
    pub(super) listeners: Vec<IdTold<ListenerId>>,
    pub(super) loadbalancers: Vec<IdTold<LoadBalancerId>>,
}

/// The fields of a pool that hangs on a listener.
pub(super) const POOL_FIELDS: [&str; 6] =
    ["id", "lb_algorithm", "session_persistence", "healthmonitor_id", "admin_state_up", "members"];

/// The fields by which a pool is known that may hang on no listener.
pub(super) const SPARE_POOL_FIELDS: [&str; 5] = ["id", "name", "protocol", "listeners", "loadbalancers"];

/// Something of which just the id is told.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct IdTold<I> {
    pub(super) id: I,
}

/// A pool's session persistence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PersistenceTold {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) persistence_timeout: Option<u32>,
}

/// A pool's health monitor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MonitorTold {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) delay: u32,
    pub(super) timeout: u32,
    pub(super) max_retries: u8,
    pub(super) admin_state_up: Option<bool>,
}

pub(super) const MONITOR_FIELDS: [&str; 6] =
    ["id", "type", "delay", "timeout", "max_retries", "admin_state_up"];

/// A member of a pool, as it is read. The tree of states has no subnet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MemberTold {
    pub(super) id: MemberId,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) address: Option<IpAddr>,
    pub(super) protocol_port: u16,
    pub(super) subnet_id: Option<SubnetId>,
    #[serde(deserialize_with = "or_default")]
    pub(super) provisioning_status: String,
}

pub(super) const MEMBER_FIELDS: [&str; 6] =
    ["id", "name", "address", "protocol_port", "subnet_id", "provisioning_status"];

/// The states of a load balancer and of all that hangs on it: one answer with the members of all its pools.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StatesTold {
    pub(super) loadbalancer: LoadBalancerStates,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LoadBalancerStates {
    #[serde(default)]
    pub(super) listeners: Vec<ListenerStates>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListenerStates {
    #[serde(default)]
    pub(super) pools: Vec<PoolStates>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolStates {
    pub(super) id: PoolId,
    #[serde(default)]
    pub(super) members: Vec<MemberTold>,
}

/// A load balancer that is to be made with all that hangs on it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewLoadBalancer<'a> {
    pub(super) name: &'a str,
    pub(super) project_id: &'a ProjectId,
    pub(super) description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<String>,
    pub(super) vip_address: IpAddr,
    pub(super) vip_subnet_id: &'a SubnetId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vip_port_id: Option<PortId>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) vip_sg_ids: &'a [SecurityGroupId],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider: Option<&'a str>,
    pub(super) admin_state_up: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) listeners: Vec<NewListener>,
}

/// A listener that is to be made, with its pool or by itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewListener {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    pub(super) protocol_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loadbalancer_id: Option<LoadBalancerId>,
    #[serde(flatten)]
    pub(super) settings: ListenerChange,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_pool: Option<NewPool>,
}

/// What can be changed of a listener. What is left open is not sent: older releases know less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ListenerChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_client_data: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_member_data: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed_cidrs: Option<Vec<IpNet>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_state_up: Option<bool>,
}

/// A pool that is to be made, with its members or by itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewPool {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) listener_id: Option<ListenerId>,
    pub(super) lb_algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_persistence: Option<PersistenceTold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) healthmonitor: Option<NewMonitor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<NewMember>,
}

/// What can be changed of a pool.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PoolChange {
    pub(super) lb_algorithm: &'static str,
    pub(super) session_persistence: Option<PersistenceTold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_state_up: Option<bool>,
}

/// A health monitor that is to be made, with its pool or by itself.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewMonitor {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pool_id: Option<PoolId>,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(flatten)]
    pub(super) settings: MonitorChange,
}

/// What can be changed of a health monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MonitorChange {
    pub(super) delay: u32,
    pub(super) timeout: u32,
    pub(super) max_retries: u8,
    pub(super) max_retries_down: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_state_up: Option<bool>,
}

/// A member that is to be there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewMember {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) protocol_port: u16,
    pub(super) subnet_id: SubnetId,
}

/// What is changed of a load balancer; the rest stays.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LoadBalancerChange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vip_sg_ids: Option<&'a [SecurityGroupId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_state_up: Option<bool>,
}
