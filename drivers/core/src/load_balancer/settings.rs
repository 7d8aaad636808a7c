//! Settings of the listeners and pools of a load balancer.

use std::fmt;
use std::ops::Not;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a listener. In the default value, the cloud chooses every setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerSettings {
    /// The timeout of idle client connections in milliseconds, 1 or more; `None` for the cloud's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_timeout_ms: Option<u32>,
    /// The timeout of idle connections to members in milliseconds, 1 or more; `None` for the cloud's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_timeout_ms: Option<u32>,
    /// The networks from which the listener accepts connections; empty for all addresses. All have the address family of the load
    /// balancer's address, and no host bits are set. Sorted, without duplicates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_cidrs: Vec<IpNet>,
    /// `true` if the listener was disabled by another program. A spec never asks for this.
    #[serde(skip_serializing_if = "Not::not")]
    pub disabled: bool,
}

impl ListenerSettings {
    /// Returns `true` if every setting is left to the cloud, so that a request need not contain any.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The settings of a pool. In the default value, the cloud chooses every setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettings {
    /// The algorithm that chooses a member for a connection; `None` for the cloud's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// The session persistence by client address; `None` if it is not wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<SessionPersistence>,
    /// The health monitor; `None` if it is not wanted. A disabled health monitor counts as `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<HealthMonitor>,
    /// `true` if the pool was disabled by another program. A spec never asks for this.
    #[serde(skip_serializing_if = "Not::not")]
    pub disabled: bool,
}

impl PoolSettings {
    /// Returns `true` if every setting is left to the cloud, so that a request need not contain any.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The algorithm by which a pool chooses a member for a connection. In JSON, the names are those of the Octavia API:
/// `ROUND_ROBIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Algorithm {
    /// All members in turn.
    #[default]
    RoundRobin,
    /// The member with the fewest connections.
    LeastConnections,
    /// The same member for each client address.
    SourceIp,
    /// The same member for the same addresses and ports of both ends.
    SourceIpPort,
}

/// Writes the name in the Octavia API.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Session persistence by client address: all connections from one address go to the same member. A service requests it by its
/// `sessionAffinity` (`ClientIP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPersistence {
    /// The time without a connection, in seconds, after which a client may get another member: 1 or more; `None` for the cloud's
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
}

/// The health checks of a pool's members. A check is a connection by the protocol of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthMonitor {
    /// The time between two checks, in seconds, 1 or more.
    pub delay_s: u32,
    /// The timeout of a check in seconds, 1 or more and less than `delay_s`.
    pub timeout_s: u32,
    /// The number of consecutive successful or failed checks that change the health of a member: 1 to 10.
    pub max_retries: u8,
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
