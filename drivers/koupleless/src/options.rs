//! The options of the tunnel to bases over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::SEND_LIMIT;

/// Options of the tunnel over HTTP.
///
/// Bases send no credentials, so whoever can reach the address of `listen` can pose as a new base. Let only bases reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTunnelOptions {
    /// The address at which bases report, on loopback by default.
    pub listen: SocketAddr,
    /// Networks in which a base may have another address than the one from which it reports. Elsewhere, a base is called at the
    /// address from which it reports, and a report that names another one is rejected.
    pub base_networks: Vec<IpNet>,
    /// The time limit of opening a connection to a base, in milliseconds.
    pub connect_timeout_ms: NonZeroU64,
    /// The time limit of a query to a base, in milliseconds.
    pub query_timeout_ms: NonZeroU64,
    /// The time limit of loading or unloading a module, in milliseconds.
    pub operation_timeout_ms: NonZeroU64,
    /// The maximum number of bases. Reports of further ones are rejected.
    pub max_bases: NonZeroUsize,
    /// The time within which a change of a module is sent or given up. The controller derives it from `vnode.lease_duration_s`: it must be
    /// shorter than the time between the end of a replica's right to act for a node and the moment when another replica may take the node.
    #[serde(skip)]
    pub send_limit: Duration,
}

impl Default for HttpTunnelOptions {
    fn default() -> Self {
        let count = |number| NonZeroU64::new(number).expect("the defaults are not zero");
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7777).into(),
            base_networks: Vec::new(),
            connect_timeout_ms: count(5_000),
            query_timeout_ms: count(10_000),
            operation_timeout_ms: count(300_000),
            max_bases: NonZeroUsize::new(10_000).expect("the defaults are not zero"),
            send_limit: SEND_LIMIT,
        }
    }
}

/// Converts an option in milliseconds into a duration.
pub(crate) fn milliseconds(option: NonZeroU64) -> Duration {
    Duration::from_millis(option.get())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_of_nothing_and_unknown_ones_are_rejected() {
        let read = |options| serde_json::from_value::<HttpTunnelOptions>(options);
        assert!(HttpTunnelOptions::default().listen.ip().is_loopback());
        assert!(read(json!({ "listen": "[::1]:7777", "base_networks": ["10.0.0.0/8"] })).is_ok());
        for wrong in [json!({ "query_timeout_ms": 0 }), json!({ "max_bases": 0 }), json!({ "port": 1 })] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
