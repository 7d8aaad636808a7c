//! The load balancer of a service: a tree of listeners, pools and members.

use std::fmt;
use std::net::IpAddr;
use std::ops::Not;
use std::str::FromStr;
use std::time::Duration;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

use super::settings::{ListenerSettings, PoolSettings};
use crate::id::{ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId};
use crate::milliseconds;

/// A load balancer with its listeners, pools and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// The id of the load balancer in the cloud.
    pub id: LoadBalancerId,
    /// The project to which the load balancer belongs.
    pub project: ProjectId,
    /// The name: `namespace/service`.
    pub name: String,
    /// The virtual IP address: the service's cluster IP.
    pub vip: IpAddr,
    /// The subnet of `vip`.
    pub subnet: SubnetId,
    /// The port that has the address `vip`.
    pub port: PortId,
    /// The provider that implements the load balancer, such as `amphora` or `ovn`; `None` if the cloud does not report it.
    pub provider: Option<String>,
    /// The security groups of `port`, sorted.
    pub security_groups: Vec<SecurityGroupId>,
    /// `true` if the load balancer was disabled by another program. A spec never asks for this.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub disabled: bool,
    /// The provisioning status, which tells whether the load balancer accepts changes.
    pub status: ProvisioningStatus,
    /// The listeners of the load balancer, with their pools and members.
    pub listeners: Vec<Listener>,
}

impl LoadBalancer {
    /// Returns the active load balancer that a driver creates from `spec` by one request, with all its listeners. `new_id` returns the id of
    /// a new listener, pool or member by its name.
    pub fn created(
        spec: &LoadBalancerSpec,
        id: LoadBalancerId,
        port: PortId,
        mut new_id: impl FnMut(String) -> String,
    ) -> Self {
        let bare = Self {
            id,
            project: spec.project.clone(),
            name: spec.name.clone(),
            vip: spec.vip,
            subnet: spec.subnet.clone(),
            port,
            provider: spec.provider.clone(),
            security_groups: spec.security_groups.clone().unwrap_or_default(),
            disabled: false,
            status: ProvisioningStatus::Active,
            listeners: Vec::new(),
        };
        let listeners = spec.listeners.iter().cloned().map(ListenerChange::Ensure);
        let create = |made: Self, listener| {
            made.changed(&listener, &mut new_id).expect("a listener can be added to a load balancer")
        };
        Self { status: ProvisioningStatus::Active, ..listeners.fold(bare, create) }
    }

    /// Returns the name of a listener and of its pool: `namespace/service:TCP:80`.
    pub fn listener_name(&self, at: ListenerPort) -> String {
        format!("{}:{}:{}", self.name, at.protocol, at.port)
    }

    /// Returns `true` if only the port of the load balancer's address exists, because its creation was interrupted. The id of
    /// such a load balancer is the id of its port. It is completed or released like any other one.
    pub fn is_port_alone(&self) -> bool {
        self.id.as_str() == self.port.as_str()
    }

    /// Returns the listener on this protocol and port; `None` if there is none.
    pub fn listener(&self, at: ListenerPort) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.at == at)
    }

    /// Returns the load balancer with `listener` in place of the listener on this protocol and port; `None` removes it. The
    /// status is [`Pending`](ProvisioningStatus::Pending) until the driver reports another one.
    #[must_use]
    pub fn with_listener(&self, at: ListenerPort, listener: Option<Listener>) -> Self {
        let mut changed = Self { status: ProvisioningStatus::Pending, ..self.clone() };
        match changed.listeners.iter().position(|present| present.at == at) {
            Some(place) => drop(changed.listeners.splice(place..=place, listener)),
            None => changed.listeners.extend(listener),
        }
        changed
    }

    /// Returns the load balancer after the complete `change`, for drivers that make it by one request. Existing parts keep their
    /// ids. `new_id` returns the id of a new listener, pool or member; its argument is a name of the part, which is unique among
    /// the parts of its kind in the listener. Returns `None` if the change sets the members of a pool that does not exist.
    pub fn changed(&self, change: &ListenerChange, mut new_id: impl FnMut(String) -> String) -> Option<Self> {
        let (at, found) = (change.at(), self.listener(change.at()));
        let found_pool = found.and_then(|found| found.pool.as_ref());
        let member = |spec: &MemberSpec| {
            let mut members = found_pool.iter().flat_map(|pool| &pool.members);
            let known = members.find(|member| (member.spec.ip, member.spec.port) == (spec.ip, spec.port));
            let new = || new_id(format!("{}-{}", spec.ip, spec.port)).into();
            Member { id: known.map_or_else(new, |member| member.id.clone()), spec: spec.clone() }
        };
        let listener = match change {
            ListenerChange::Release(_) => None,
            ListenerChange::SetMembers(_, wanted) => {
                let members = wanted.iter().map(member).collect();
                let pool = Pool { members, ..found_pool?.clone() };
                Some(Listener { pool: Some(pool), ..found?.clone() })
            }
            ListenerChange::Ensure(ListenerSpec { settings, pool: spec, .. }) => {
                let name = self.listener_name(at);
                let pool = match found_pool {
                    Some(pool) => Pool { settings: spec.settings.clone(), ..pool.clone() },
                    None => Pool {
                        members: spec.members.iter().map(member).collect(),
                        id: new_id(name.clone()).into(),
                        settings: spec.settings.clone(),
                    },
                };
                let id = found.map_or_else(|| new_id(name).into(), |found| found.id.clone());
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
    /// The load balancer accepts changes.
    Active,
    /// The load balancer is being created, changed or deleted, and accepts no other change until this ends.
    Pending,
    /// The last change failed, and the load balancer accepts no more changes. It must be created again.
    Error,
}

/// The progress of the last change of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadBalancerProgress {
    /// The change has ended, and the load balancer accepts the next one.
    Active,
    /// The change has not ended yet.
    Pending {
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
    /// The change failed. The load balancer accepts no more changes and must be created again.
    Error,
}

/// A listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The id of the listener in the cloud.
    pub id: ListenerId,
    /// The protocol and port, unique among the listeners of a load balancer.
    pub at: ListenerPort,
    /// The settings of the listener (timeouts, allowed client networks), without those of its pool.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// The pool; `None` if its creation was interrupted.
    pub pool: Option<Pool>,
}

/// The desired state of a listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSpec {
    /// The protocol and port on which the listener accepts connections.
    pub at: ListenerPort,
    /// The settings of the listener (timeouts, allowed client networks), without those of its pool.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// The desired state of the listener's pool.
    pub pool: PoolSpec,
}

impl ListenerSpec {
    /// Returns `true` if `found` has the protocol, port and settings of this spec, and a pool with the settings of this spec.
    /// Members are not compared.
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
    /// Replaces all members of the listener's pool by one request.
    SetMembers(ListenerPort, Vec<MemberSpec>),
    /// Releases the listener's pool with its members, and then the listener. A listener that does not exist counts as released.
    Release(ListenerPort),
    /// Creates the missing parts of the listener, its pool and the members of a new pool, and applies the settings. The members
    /// of an existing pool stay unchanged.
    Ensure(ListenerSpec),
}

impl ListenerChange {
    /// Returns the protocol and port of the listener.
    pub fn at(&self) -> ListenerPort {
        match self {
            Self::SetMembers(at, _) | Self::Release(at) | Self::Ensure(ListenerSpec { at, .. }) => *at,
        }
    }
}

/// The desired state of a listener's pool with its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// The settings of the pool (algorithm, session persistence, health monitor), without those of its listener.
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    pub settings: PoolSettings,
    /// The members of the pool, sorted, without duplicates of the address and port.
    pub members: Vec<MemberSpec>,
}

/// The protocol and port on which a listener accepts connections. It identifies the listener within its load
/// balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerPort {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The port, 1 to 65535.
    pub port: u16,
}

impl fmt::Display for ListenerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, self.port)
    }
}

/// The transport protocol of a service's port, a listener or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP, written `TCP`.
    Tcp,
    /// UDP, written `UDP`.
    Udp,
    /// SCTP, written `SCTP`.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Protocol {
    type Err = serde::de::value::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::deserialize(text.into_deserializer())
    }
}

/// The pool of a listener. It has the same name as the listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The id of the pool in the cloud.
    pub id: PoolId,
    /// The settings of the pool (algorithm, session persistence, health monitor), without those of its listener.
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    pub settings: PoolSettings,
    /// The members of the pool, in any order.
    pub members: Vec<Member>,
}

/// A member of a pool: an address and port of a pod that receives connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The id of the member in the cloud.
    pub id: MemberId,
    /// The address, port, name and subnet of the member. The address and port are unique in a pool.
    pub spec: MemberSpec,
}

/// The properties of a member of a pool, desired or existing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberSpec {
    /// The IP address of the pod.
    pub ip: IpAddr,
    /// The port, 1 to 65535.
    pub port: u16,
    /// The name of the member, for people: `namespace/pod:8080`.
    pub name: String,
    /// The subnet through which the load balancer reaches the address.
    pub subnet: SubnetId,
}

/// The desired state of a load balancer with its listeners, pools and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerSpec {
    /// The name: `namespace/service`.
    pub name: String,
    /// The project to which the load balancer belongs.
    pub project: ProjectId,
    /// The subnet of `vip`.
    pub subnet: SubnetId,
    /// The virtual IP address: the service's cluster IP.
    pub vip: IpAddr,
    /// The requested provider, such as `amphora` or `ovn`; `None` accepts any provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The security groups of the load balancer's port, sorted. `None` if the cloud manages them: existing groups stay. An empty
    /// list removes the existing groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<SecurityGroupId>>,
    /// The listeners with their pools, sorted by protocol and port, without duplicates of these.
    pub listeners: Vec<ListenerSpec>,
    /// The id of a load balancer that a previous controller created for the same service without an ownership mark; `None` if
    /// there is none. It gets the mark of the owner. A new load balancer is created instead if this one does not exist, has the
    /// mark of another owner or cluster, or does not have the address, subnet and project of this spec: the id may come from an
    /// annotation, which cannot be trusted.
    pub adopt: Option<LoadBalancerId>,
}

/// A [`LoadBalancerSpec`] reduced to the parts that the cloud supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NormalizedSpec {
    /// The reduced spec, with the defaults of the driver.
    pub spec: LoadBalancerSpec,
    /// The unsupported parts of the original spec, each as a phrase for people (`SCTP:9000`, `session persistence of TCP:80`).
    /// Equal specs have equal phrases.
    pub without: Vec<String>,
}
