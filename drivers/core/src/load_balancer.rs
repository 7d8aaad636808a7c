//! The load balancer of a service: the tree of listener, pool and members.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{ListenerId, LoadBalancerId, MemberId, PoolId, PortId, ProjectId, SecurityGroupId, SubnetId};

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
    /// What the other side is doing with it.
    pub status: Provisioning,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

impl LoadBalancer {
    /// The name of a listener and of its pool: `namespace/service:TCP:80`.
    pub fn listener_name(&self, at: ListenerSpec) -> String {
        format!("{}:{}:{}", self.name, at.protocol, at.port)
    }

    /// The listener of that protocol and port.
    pub fn listener(&self, at: ListenerSpec) -> Option<&Listener> {
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

/// A listener with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The id.
    pub id: ListenerId,
    /// The protocol and port on which it listens: what tells the listeners of a load balancer apart.
    pub at: ListenerSpec,
    /// Its pool; none when its making was interrupted.
    pub pool: Option<Pool>,
}

/// What is known of a listener before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerSpec {
    /// The protocol.
    pub protocol: Protocol,
    /// The port, 1 to 65535.
    pub port: u16,
}

impl fmt::Display for ListenerSpec {
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
    /// The members.
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

/// What is known of a load balancer before it is made.
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
    /// The security groups, sorted; none for the other side's own default.
    pub security_groups: Vec<SecurityGroupId>,
    /// One that a predecessor of this program made for the same service and did not mark: it is to be marked with the
    /// owner. When it does not exist any more, a new one is made.
    pub adopt: Option<LoadBalancerId>,
}
