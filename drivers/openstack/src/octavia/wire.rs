//! The JSON bodies of Octavia. The fields are those of Octavia's API reference.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use staffetta_driver::{
    ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId,
};

use crate::text::or_default;

/// The provisioning status of a resource that is being deleted.
pub(super) const PENDING_DELETE: &str = "PENDING_DELETE";

/// A type of resource in Octavia's API: its path, JSON keys and fields, and the operations that errors name.
pub(super) trait OctaviaResource: DeserializeOwned {
    /// The path of the collection. It is also the key of the items in a list.
    const COLLECTION: &'static str;
    /// The key of a single resource in requests and responses.
    const KEY: &'static str;
    /// The fields that lists and reads request, separated by spaces.
    const FIELDS: &'static str;
    /// The operation that errors of a creation name, such as `create a pool`.
    const CREATE: &'static str;
    /// The operation that errors of an update name, such as `update a pool`.
    const UPDATE: &'static str;
    /// The operation that errors of a deletion name, such as `delete a pool`.
    const DELETE: &'static str;
}

macro_rules! resource {
    ($body:ty, $collection:literal, $key:literal, $name:literal, $fields:literal) => {
        impl OctaviaResource for $body {
            const COLLECTION: &'static str = $collection;
            const KEY: &'static str = $key;
            const FIELDS: &'static str = $fields;
            const CREATE: &'static str = concat!("create ", $name);
            const UPDATE: &'static str = concat!("update ", $name);
            const DELETE: &'static str = concat!("delete ", $name);
        }
    };
}

resource!(
    LoadBalancerBody,
    "loadbalancers",
    "loadbalancer",
    "a load balancer",
    "id name project_id description tags provisioning_status vip_address vip_subnet_id vip_port_id vip_sg_ids \
     provider admin_state_up"
);
resource!(
    ListenerBody,
    "listeners",
    "listener",
    "a listener",
    "id protocol protocol_port default_pool_id timeout_client_data timeout_member_data allowed_cidrs admin_state_up loadbalancers"
);
resource!(
    PoolBody,
    "pools",
    "pool",
    "a pool",
    "id lb_algorithm session_persistence healthmonitor_id admin_state_up members"
);
resource!(
    MonitorBody,
    "healthmonitors",
    "healthmonitor",
    "a health monitor",
    "id type delay timeout max_retries admin_state_up"
);

/// A load balancer in a response. The response to its creation contains whole listeners and pools; other responses contain only their ids.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancerBody {
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
    pub(super) listeners: Vec<ListenerBody>,
    pub(super) pools: Vec<PoolBody>,
}

/// A listener in a response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListenerBody {
    pub(super) id: ListenerId,
    pub(super) protocol: String,
    pub(super) protocol_port: u16,
    pub(super) default_pool_id: Option<PoolId>,
    pub(super) timeout_client_data: Option<u32>,
    pub(super) timeout_member_data: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub(super) allowed_cidrs: Vec<IpNet>,
    pub(super) admin_state_up: Option<bool>,
    pub(super) loadbalancers: Vec<IdBody<LoadBalancerId>>,
    /// The pools of the listener, in a status tree only.
    pub(super) pools: Vec<PoolBody>,
}

/// A pool in a response. The response to the creation of a load balancer contains the monitor and whole members of its pools; other
/// responses contain only the ids of members.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolBody {
    pub(super) id: PoolId,
    pub(super) protocol: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) lb_algorithm: String,
    pub(super) session_persistence: Option<PersistenceBody>,
    pub(super) healthmonitor_id: Option<String>,
    pub(super) healthmonitor: Option<MonitorBody>,
    pub(super) admin_state_up: Option<bool>,
    pub(super) members: Vec<MemberBody>,
    pub(super) listeners: Vec<IdBody<ListenerId>>,
    pub(super) loadbalancers: Vec<IdBody<LoadBalancerId>>,
}

/// The fields that identify a pool without a listener.
pub(super) const DETACHED_POOL_FIELDS: &str = "id name protocol listeners loadbalancers";

/// A reference to a resource by its id.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct IdBody<I> {
    pub(super) id: I,
}

/// The session persistence of a pool, in requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PersistenceBody {
    /// The type of session persistence. This driver uses only `SOURCE_IP`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The timeout in seconds, or `None` for Octavia's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) persistence_timeout: Option<u32>,
}

/// A health monitor in a response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MonitorBody {
    pub(super) id: String,
    /// The interval of checks, in seconds.
    pub(super) delay: u32,
    /// The timeout of a check, in seconds.
    pub(super) timeout: u32,
    pub(super) max_retries: u8,
    pub(super) admin_state_up: Option<bool>,
}

/// A member of a pool in a response. It has no subnet in a status tree.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MemberBody {
    pub(super) id: MemberId,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    pub(super) address: Option<IpAddr>,
    pub(super) protocol_port: u16,
    pub(super) subnet_id: Option<SubnetId>,
    #[serde(deserialize_with = "or_default")]
    pub(super) provisioning_status: String,
}

/// The fields of members that lists request, separated by spaces.
pub(super) const MEMBER_FIELDS: &str = "id name address protocol_port subnet_id provisioning_status";

/// The status tree of a load balancer: one response that contains its listeners, their pools, and the members of these pools.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StatusTreeBody {
    /// The load balancer with its listeners.
    pub(super) loadbalancer: LoadBalancerBody,
}
