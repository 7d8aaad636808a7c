//! Settings of the listeners and pools of a load balancer.

use std::fmt;

use ipnet::IpNet;
use schemars::JsonSchema;
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

/// The algorithm by which a pool chooses a member for a connection. The names are Octavia's: `ROUND_ROBIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Algorithm {
    /// In turn.
    #[default]
    RoundRobin,
    /// The member with the fewest connections.
    LeastConnections,
    /// By the client's address.
    SourceIp,
    /// By the addresses and ports of both ends.
    SourceIpPort,
}

/// Writes the name.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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
    /// The number of successful or failed checks in a row that change the health of a member: 1 to 10.
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
    fn an_algorithm_is_shown_and_read_by_its_name() {
        assert_eq!(Algorithm::SourceIpPort.to_string(), "SOURCE_IP_PORT");
        assert_eq!(serde_json::from_str::<Algorithm>("\"SOURCE_IP_PORT\"").unwrap(), Algorithm::SourceIpPort);
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
