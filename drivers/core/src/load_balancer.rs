//! The load balancer of a service: the tree of listener, pool and members.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId};
use crate::load_balancer_settings::{ListenerSettings, PoolSettings, is_false};
use crate::milliseconds;

/// A load balancer with all that hangs on it.
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
    /// Which implementation serves it, where the other side tells: `amphora`, `ovn`.
    pub provider: Option<String>,
    /// The security groups of that port, sorted.
    pub security_groups: Vec<SecurityGroupId>,
    /// Whether somebody switched it off, which is never wanted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// What the other side is doing with it.
    pub status: Provisioning,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

impl LoadBalancer {
    /// The name of a listener and of its pool: `namespace/service:TCP:80`.
    pub fn listener_name(&self, at: ListenerPort) -> String {
        format!("{}:{}:{}", self.name, at.protocol, at.port)
    }

    /// Whether nothing but the port of its address stands, which an interruption left. It has the id of that port, which no
    /// load balancer has, and is made whole, or released, like any other.
    pub fn is_port_alone(&self) -> bool {
        self.id.as_str() == self.port.as_str()
    }

    /// The listener of that protocol and port.
    pub fn listener(&self, at: ListenerPort) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.at == at)
    }
}

/// What the other side is doing with a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provisioning {
    /// Nothing: it takes changes.
    Active,
    /// It makes, changes or deletes it, and takes no change meanwhile.
    Pending,
    /// It failed and takes no change any more. The load balancer must be made anew.
    Error,
}

/// How far the other side is with the last change of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It is done, and the load balancer takes the next one.
    Active,
    /// Not yet.
    Pending {
        /// When it is worth asking again. In JSON, whole milliseconds.
        #[serde(rename = "ask_again_ms", with = "milliseconds")]
        ask_again: Duration,
    },
    /// It failed. The load balancer takes no change any more, and must be made anew.
    Error,
}

/// A listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The id.
    pub id: ListenerId,
    /// The protocol and port on which it listens: what tells the listeners of a load balancer apart.
    pub at: ListenerPort,
    /// How it treats its clients.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// Its pool; none when its making was interrupted.
    pub pool: Option<Pool>,
}

/// What is known of a listener before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSpec {
    /// The protocol and port on which it listens.
    pub at: ListenerPort,
    /// How it treats its clients.
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    pub settings: ListenerSettings,
    /// Its pool.
    pub pool: PoolSpec,
}

impl ListenerSpec {
    /// Whether `found` is this listener, with its pool and their settings; members come and go.
    pub fn is_made(&self, found: &Listener) -> bool {
        let pool = found.pool.as_ref();
        found.at == self.at
            && found.settings == self.settings
            && pool.is_some_and(|pool| pool.settings == self.pool.settings)
    }
}

/// What is known of a pool before it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// How it hands connections to its members.
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
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A text is no protocol of a service's port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of the protocols TCP, UDP and SCTP")]
pub struct NotAProtocol(String);

impl FromStr for Protocol {
    type Err = NotAProtocol;

    fn from_str(text: &str) -> Result<Self, NotAProtocol> {
        match text {
            "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(NotAProtocol(text.to_owned())),
        }
    }
}

/// The pool behind a listener. It bears the listener's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The id.
    pub id: PoolId,
    /// How it hands connections to its members.
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
    /// What it is. Its address and port tell the members of a pool apart.
    pub spec: MemberSpec,
}

/// What is known of a member before it is made.
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

/// What is known of a load balancer before it is made: the whole tree.
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
    /// Which implementation is to serve it; none where that is all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The security groups, sorted. Absent where they are the other side's business: those that it has stay. An empty list
    /// takes away those that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<SecurityGroupId>>,
    /// The listeners with their pools, sorted by protocol and port, none of these twice.
    pub listeners: Vec<ListenerSpec>,
    /// One that a predecessor of this program made for the same service and did not mark: it is to be marked with the
    /// owner. When it does not exist any more, or bears a mark, or is not at this address, in this subnet and project, it is
    /// left alone and a new one is made: whoever names it may have no say in it.
    pub adopt: Option<LoadBalancerId>,
}

/// A spec as the other side can serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feasible {
    /// The spec.
    pub spec: LoadBalancerSpec,
    /// What it goes without, because the other side has no such thing: a phrase each, for people, the same for the same
    /// spec (`SCTP:9000`, `session persistence of TCP:80`).
    pub without: Vec<String>,
}
