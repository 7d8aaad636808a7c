//! Settings of the listeners and pools of a load balancer.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The settings of a listener. The default leaves each to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerSettings {
    /// The idle timeout of clients, in milliseconds, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_timeout_ms: Option<u32>,
    /// The idle timeout of members, in milliseconds, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_timeout_ms: Option<u32>,
    /// The only addresses from which it takes connections, all of the family of the load balancer's own, sorted, each once
    /// and without host bits; empty for any address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_cidrs: Vec<IpNet>,
    /// `true` if it was disabled from outside, which is never wanted.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
}

impl ListenerSettings {
    /// Returns `true` if every setting is left to the cloud.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The settings of a pool. The default leaves each to the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettings {
    /// The algorithm that chooses a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Session persistence by the client's address, if wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<SessionPersistence>,
    /// The health monitor, if wanted. A disabled one counts as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<HealthMonitor>,
    /// `true` if it was disabled from outside, which is never wanted.
    #[serde(skip_serializing_if = "is_false")]
    pub disabled: bool,
}

impl PoolSettings {
    /// Returns `true` if every setting is left to the cloud.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The algorithm by which a pool chooses a member for a connection. The names are Octavia's.
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
pub struct ParseAlgorithmError(String);

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(text: &str) -> Result<Self, ParseAlgorithmError> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| ParseAlgorithmError(text.to_owned()))
    }
}

/// All connections of a client's address go to one member: `sessionAffinity: ClientIP` of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPersistence {
    /// The timeout in seconds without a connection, 1 or more; `None` for the cloud's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
}

/// A health check of members, by a connection of the pool's own protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthMonitor {
    /// The time between two questions, in seconds, 1 or more.
    pub delay_s: u32,
    /// The timeout of a check in seconds, 1 or more and less than `delay_s`.
    pub timeout_s: u32,
    /// The number of consecutive successful or failed checks that change the health of a member: 1 to 10.
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
