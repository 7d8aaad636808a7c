//! How the listeners and pools of a load balancer treat connections.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// How a listener treats its clients. The default leaves everything to the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerSettings {
    /// How long a client may be silent, in milliseconds, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_timeout_ms: Option<u32>,
    /// How long a member may be silent, in milliseconds, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_timeout_ms: Option<u32>,
    /// The only addresses from which it takes connections, all of the family of the load balancer's own, sorted, each once
    /// and without host bits; empty for any address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_cidrs: Vec<IpNet>,
    /// Whether somebody switched it off, which is never wanted.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
}

impl ListenerSettings {
    /// Whether everything is left to the other side.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a pool hands connections to its members. The default leaves everything to the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettings {
    /// By which rule a member is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Whether all connections of a client's address go to one member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<SessionPersistence>,
    /// Whether members are asked how they are. One that somebody switched off asks nobody, and is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<HealthMonitor>,
    /// Whether somebody switched it off, which is never wanted.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
}

impl PoolSettings {
    /// Whether everything is left to the other side.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// By which rule a pool chooses a member for a connection. The names are Octavia's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Algorithm {
    /// `ROUND_ROBIN`: one after the other.
    RoundRobin,
    /// `LEAST_CONNECTIONS`: the one with the fewest.
    LeastConnections,
    /// `SOURCE_IP`: by the client's address.
    SourceIp,
    /// `SOURCE_IP_PORT`: by the addresses and ports of both ends.
    SourceIpPort,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::LeastConnections, Self::SourceIp, Self::SourceIpPort];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "ROUND_ROBIN",
            Self::LeastConnections => "LEAST_CONNECTIONS",
            Self::SourceIp => "SOURCE_IP",
            Self::SourceIpPort => "SOURCE_IP_PORT",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text is the name of no [`Algorithm`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP and SOURCE_IP_PORT")]
pub struct NotAnAlgorithm(String);

impl FromStr for Algorithm {
    type Err = NotAnAlgorithm;

    fn from_str(text: &str) -> Result<Self, NotAnAlgorithm> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| NotAnAlgorithm(text.to_owned()))
    }
}

/// All connections of a client's address go to one member: `sessionAffinity: ClientIP` of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPersistence {
    /// After how many seconds without a connection that ends, 1 or more; none for the other side's own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
}

/// How members are asked how they are: by a connection of the pool's own protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthMonitor {
    /// The time between two questions, in seconds, 1 or more.
    pub delay_s: u32,
    /// How long an answer may take, in seconds, 1 or more and less than `delay_s`.
    pub timeout_s: u32,
    /// After how many answers in a row a member counts as well again, and after how many missing ones it does not: 1 to 10.
    pub max_retries: u8,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference on")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_read_as_it_is_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(serde_json::to_value(algorithm).unwrap(), algorithm.name());
        }
        let error = "round-robin".parse::<Algorithm>().unwrap_err();
        assert!(error.to_string().contains("`round-robin` is none of ROUND_ROBIN"), "{error}");
    }

    #[test]
    fn settings_that_are_left_open_say_nothing() {
        assert_eq!(serde_json::to_string(&ListenerSettings::default()).unwrap(), "{}");
        assert_eq!(serde_json::to_string(&PoolSettings::default()).unwrap(), "{}");
        let said = serde_json::json!({ "client_timeout_ms": 60_000, "allowed_cidrs": ["192.0.2.0/24"] });
        let read: ListenerSettings = serde_json::from_value(said.clone()).unwrap();
        assert_eq!((read.is_default(), serde_json::to_value(read).unwrap()), (false, said));
        let said = serde_json::json!({ "algorithm": "SOURCE_IP", "persistence": { "timeout_s": 60 },
            "monitor": { "delay_s": 5, "timeout_s": 3, "max_retries": 2 } });
        let read: PoolSettings = serde_json::from_value(said.clone()).unwrap();
        assert_eq!((read.is_default(), serde_json::to_value(read).unwrap()), (false, said));
    }
}
