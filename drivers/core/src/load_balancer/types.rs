//! The load balancer of a service: the tree of listener, pool and members.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::settings::{ListenerSettings, PoolSettings, is_false};
use crate::id::{ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId};
use crate::milliseconds;

/// A load balancer with its listeners, pools and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// The id.
    pub id: LoadBalancerId,
    /// The project.
    pub project: ProjectId,
    /// The name: `namespace/service`.
    pub name: String,
    /// The address on which it listens: the service's cluster IP.
    pub vip: IpAddr,
    /// The subnet in which that address lies.
    pub subnet: SubnetId,
    /// The port that holds that address.
    pub port: PortId,
    /// The provider that implements it, if reported: `amphora`, `ovn`.
    pub provider: Option<String>,
    /// The security groups of that port, sorted.
    pub security_groups: Vec<SecurityGroupId>,
    /// `true` if it was disabled from outside, which is never wanted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// The provisioning status.
    pub status: ProvisioningStatus,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

impl LoadBalancer {
    /// The name of a listener and of its pool: `namespace/service:TCP:80`.
    pub fn listener_name(&self, at: ListenerPort) -> String {
        format!("{}:{}:{}", self.name, at.protocol, at.port)
    }

    /// Returns `true` if only the port of its address exists, because its creation was interrupted. It has the id
    /// of that port, which no load balancer has, and is completed or released like any other.
    pub fn is_port_alone(&self) -> bool {
        self.id.as_str() == self.port.as_str()
    }

    /// The listener of that protocol and port.
    pub fn listener(&self, at: ListenerPort) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.at == at)
    }

    /// The load balancer after a change that left `listener` at that protocol and port, or none. It is pending until its driver
    /// reports otherwise.
    #[must_use]
    pub fn with_listener(&self, at: ListenerPort, listener: Option<Listener>) -> Self {
        let mut changed = Self { status: ProvisioningStatus::Pending, ..self.clone() };
        match changed.listeners.iter().position(|present| present.at == at) {
            Some(place) => drop(changed.listeners.splice(place..=place, listener)),
            None => changed.listeners.extend(listener),
        }
        changed
    }

    /// The load balancer after the whole of `change`, for drivers that make it by one request. What exists keeps its id; `new_id`
    /// returns that of a listener, its pool or a member, given a name that is unique among them in the load balancer. `None` if
    /// there is no pool to set the members of.
    pub fn changed(&self, change: &ListenerChange, mut new_id: impl FnMut(String) -> String) -> Option<Self> {
        let (at, found) = (change.at(), self.listener(change.at()));
        let found_pool = found.and_then(|found| found.pool.as_ref());
        let mut members = |wanted: &[MemberSpec]| -> Vec<Member> {
            let known = |spec: &MemberSpec| {
                let mut members = found_pool.iter().flat_map(|pool| &pool.members);
                members.find(|member| (member.spec.ip, member.spec.port) == (spec.ip, spec.port))
            };
            let id = |spec: &MemberSpec| match known(spec) {
                Some(member) => member.id.clone(),
                None => new_id(format!("{}-{}", spec.ip, spec.port)).into(),
            };
            let ids: Vec<_> = wanted.iter().map(id).collect();
            ids.into_iter().zip(wanted).map(|(id, spec)| Member { id, spec: spec.clone() }).collect()
        };
        let listener = match change {
            ListenerChange::Release(_) => None,
            ListenerChange::SetMembers(_, wanted) => {
                let pool = Pool { members: members(wanted), ..found_pool?.clone() };
                Some(Listener { pool: Some(pool), ..found?.clone() })
            }
            ListenerChange::Ensure(ListenerSpec { settings, pool: spec, .. }) => {
                let name = self.listener_name(at);
                let members = found_pool.map_or_else(|| members(&spec.members), |pool| pool.members.clone());
                let pool_id = match found_pool {
                    Some(pool) => pool.id.clone(),
                    None => new_id(name.clone()).into(),
                };
                let id = match found {
                    Some(found) => found.id.clone(),
                    None => new_id(name).into(),
                };
                let pool = Pool { id: pool_id, settings: spec.settings.clone(), members };
                Some(Listener { id, at, settings: settings.clone(), pool: Some(pool) })
            }
        };
        Some(self.with_listener(at, listener))
    }
}

/// The provisioning status of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvisioningStatus {
    /// It accepts changes.
    Active,
    /// It is being created, changed or deleted, and accepts no change meanwhile.
    Pending,
    /// It failed and accepts no change any more. The load balancer must be created again.
    Error,
}

/// The progress of the last change of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadBalancerProgress {
    /// It is done, and the load balancer accepts the next one.
    Active,
    /// Not yet.
    Pending {
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
    /// It failed. The load balancer accepts no change any more, and must be created again.
    Error,
}

/// A listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The id.
    pub id: ListenerId,
    /// The protocol and port on which it listens, unique in a load balancer.
    pub at: ListenerPort,
    /// The settings for its clients.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// Its pool; `None` if its creation was interrupted.
    pub pool: Option<Pool>,
}

/// The desired state of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSpec {
    /// The protocol and port on which it listens.
    pub at: ListenerPort,
    /// The settings for its clients.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// Its pool.
    pub pool: PoolSpec,
}

impl ListenerSpec {
    /// Returns `true` if `found` is this listener with these settings and a pool with these settings. Members are not compared.
    pub fn is_made(&self, found: &Listener) -> bool {
        let pool = found.pool.as_ref();
        found.at == self.at
            && found.settings == self.settings
            && pool.is_some_and(|pool| pool.settings == self.pool.settings)
    }
}

/// A change of one listener of a load balancer, with its pool and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenerChange {
    /// Replaces all members of the listener's pool, by one request.
    SetMembers(ListenerPort, Vec<MemberSpec>),
    /// Releases the listener's pool with its members, then the listener. One that does not exist counts as released.
    Release(ListenerPort),
    /// Creates the listener and its pool with its members, or the missing ones of them, and applies the settings. The members of
    /// an existing pool stay as they are.
    Ensure(ListenerSpec),
}

impl ListenerChange {
    /// The protocol and port of the listener.
    pub fn at(&self) -> ListenerPort {
        match self {
            Self::SetMembers(at, _) | Self::Release(at) | Self::Ensure(ListenerSpec { at, .. }) => *at,
        }
    }
}

/// The desired state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The settings for its members.
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    pub settings: PoolSettings,
    /// The members, sorted, no address and port twice.
    pub members: Vec<MemberSpec>,
}

/// The protocol and port on which a listener listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The port, 1 to 65535.
    pub port: u16,
}

impl fmt::Display for ListenerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, self.port)
    }
}

/// The protocol of a service's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// `TCP`.
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A text is not a protocol of a service's port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of the protocols TCP, UDP and SCTP")]
pub struct ParseProtocolError(String);

impl FromStr for Protocol {
    type Err = ParseProtocolError;

    fn from_str(text: &str) -> Result<Self, ParseProtocolError> {
        match text {
            "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(ParseProtocolError(text.to_owned())),
        }
    }
}

/// The pool behind a listener. It bears the listener's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The id.
    pub id: PoolId,
    /// The settings for its members.
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    pub settings: PoolSettings,
    /// The members, in any order.
    pub members: Vec<Member>,
}

/// A member of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The id.
    pub id: MemberId,
    /// Its desired state. The address and port are unique in a pool.
    pub spec: MemberSpec,
}

/// The desired state of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberSpec {
    /// The address.
    pub ip: IpAddr,
    /// The port, 1 to 65535.
    pub port: u16,
    /// The name, for people: `namespace/pod:8080`.
    pub name: String,
    /// The subnet through which the load balancer reaches the address.
    pub subnet: SubnetId,
}

/// The desired state of a load balancer with its listeners, pools and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerSpec {
    /// The name: `namespace/service`.
    pub name: String,
    /// The project.
    pub project: ProjectId,
    /// The subnet of its address.
    pub subnet: SubnetId,
    /// Its address: the service's cluster IP.
    pub vip: IpAddr,
    /// The requested provider; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The security groups, sorted. `None` if the external system manages them: the existing ones stay. An empty list removes
    /// the existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<SecurityGroupId>>,
    /// The listeners with their pools, sorted by protocol and port, none of these twice.
    pub listeners: Vec<ListenerSpec>,
    /// A load balancer that an earlier controller created for the same service without a mark: it gets the mark of the owner. If
    /// it does not exist any more, has a mark, or is not at this address, in this subnet and project, it is left alone and a new
    /// one is created, since the id may come from an untrusted annotation.
    pub adopt: Option<LoadBalancerId>,
}

/// A spec that the cloud supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NormalizedSpec {
    /// The spec.
    pub spec: LoadBalancerSpec,
    /// The parts of the request that are not supported: a phrase each, for people, the same for the same
    /// spec (`SCTP:9000`, `session persistence of TCP:80`).
    pub without: Vec<String>,
}
