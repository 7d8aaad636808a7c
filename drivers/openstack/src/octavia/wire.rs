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

/// Implements [`OctaviaResource`] for the body of one type of resource.
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
    "id delay timeout max_retries admin_state_up"
);

/// A load balancer in a response. The response to its creation contains whole listeners and pools, and a status tree contains listeners
/// with pools and members; other responses contain at most their ids.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadBalancerBody {
    /// The id of the load balancer.
    pub(super) id: LoadBalancerId,
    /// The name of the load balancer.
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// The project that owns the load balancer.
    pub(super) project_id: ProjectId,
    /// The description, which contains the ownership mark.
    #[serde(deserialize_with = "or_default")]
    pub(super) description: String,
    /// The tags, which repeat the ownership mark; empty in releases without tags.
    #[serde(deserialize_with = "or_default")]
    pub(super) tags: Vec<String>,
    /// The provisioning status: `ACTIVE`, `ERROR`, `DELETED`, or one that begins with `PENDING_`.
    pub(super) provisioning_status: String,
    /// The virtual IP address.
    pub(super) vip_address: Option<IpAddr>,
    /// The subnet of the virtual IP address.
    pub(super) vip_subnet_id: Option<SubnetId>,
    /// The port that holds the virtual IP address.
    pub(super) vip_port_id: Option<PortId>,
    /// The security groups that were set for the port of the virtual IP address.
    #[serde(deserialize_with = "or_default")]
    pub(super) vip_sg_ids: Vec<SecurityGroupId>,
    /// The name of the provider, such as `amphora` or `ovn`.
    pub(super) provider: Option<String>,
    /// The administrative state: `false` if the load balancer is disabled.
    pub(super) admin_state_up: Option<bool>,
    /// The listeners; more than their ids only in the response to a creation and in a status tree.
    pub(super) listeners: Vec<ListenerBody>,
    /// The pools; more than their ids only in the response to a creation.
    pub(super) pools: Vec<PoolBody>,
}

/// A listener in a response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListenerBody {
    /// The id of the listener.
    pub(super) id: ListenerId,
    /// The protocol of connections from clients: `TCP`, `UDP`, `SCTP`, or one that services never have, such
    /// as `HTTP`.
    pub(super) protocol: String,
    /// The port on which the listener accepts connections.
    pub(super) protocol_port: u16,
    /// The pool that gets the connections.
    pub(super) default_pool_id: Option<PoolId>,
    /// The timeout of idle connections to clients, in milliseconds.
    pub(super) timeout_client_data: Option<u32>,
    /// The timeout of idle connections to members, in milliseconds.
    pub(super) timeout_member_data: Option<u32>,
    /// The networks from which the listener accepts connections; empty for all.
    #[serde(deserialize_with = "or_default")]
    pub(super) allowed_cidrs: Vec<IpNet>,
    /// The administrative state: `false` if the listener is disabled.
    pub(super) admin_state_up: Option<bool>,
    /// The load balancer of the listener, as a list of one.
    pub(super) loadbalancers: Vec<IdBody<LoadBalancerId>>,
    /// The pools of the listener, in a status tree only.
    pub(super) pools: Vec<PoolBody>,
}

/// A pool in a response. The response to the creation of a load balancer contains the monitor and whole members of its pools; other
/// responses, except a status tree, contain at most the ids of members.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolBody {
    /// The id of the pool.
    pub(super) id: PoolId,
    /// The protocol of connections to members.
    pub(super) protocol: String,
    /// The name of the pool, which is that of its listener.
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// The algorithm that chooses a member, such as `ROUND_ROBIN`.
    pub(super) lb_algorithm: String,
    /// The session persistence, if it is enabled.
    pub(super) session_persistence: Option<PersistenceBody>,
    /// The id of the health monitor, if there is one.
    pub(super) healthmonitor_id: Option<String>,
    /// The health monitor; only in the response to the creation of the load balancer.
    pub(super) healthmonitor: Option<MonitorBody>,
    /// The administrative state: `false` if the pool is disabled.
    pub(super) admin_state_up: Option<bool>,
    /// The members: whole in the response to the creation of the load balancer, without subnets in a status tree, otherwise only their ids.
    pub(super) members: Vec<MemberBody>,
    /// The listeners that use the pool.
    pub(super) listeners: Vec<IdBody<ListenerId>>,
    /// The load balancer of the pool, as a list of one.
    pub(super) loadbalancers: Vec<IdBody<LoadBalancerId>>,
}

/// The fields that a search for a pool without a listener requests, separated by spaces.
pub(super) const DETACHED_POOL_FIELDS: &str = "id name protocol listeners loadbalancers";

/// A reference to a resource by its id.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct IdBody<I> {
    /// The id of the resource.
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
    /// The id of the health monitor.
    pub(super) id: String,
    /// The interval between two checks of a member, in seconds.
    pub(super) delay: u32,
    /// The time limit of a check, in seconds.
    pub(super) timeout: u32,
    /// The number of consecutive successful checks that make a member healthy.
    pub(super) max_retries: u8,
    /// The administrative state: `false` if the monitor is disabled.
    pub(super) admin_state_up: Option<bool>,
}

/// A member of a pool in a response. It has no subnet in a status tree.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MemberBody {
    /// The id of the member.
    pub(super) id: MemberId,
    /// The name of the member, for people: `namespace/pod:8080` if this driver created it.
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// The IP address of the member.
    pub(super) address: Option<IpAddr>,
    /// The port on which the member accepts connections.
    pub(super) protocol_port: u16,
    /// The subnet through which the load balancer reaches the member.
    pub(super) subnet_id: Option<SubnetId>,
    /// The provisioning status of the member, such as `ACTIVE` or `PENDING_DELETE`.
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
