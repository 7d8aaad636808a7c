//! The options of the tunnel to bases over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use staffetta_driver::app_hosting::Password;

use crate::clock::SEND_LIMIT;

/// Options of the tunnel over HTTP.
///
/// Bases send no credentials except the `token`, so without it, whoever can reach the address of `listen` can pose as a new base. Let only
/// bases reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTunnelOptions {
    /// The address at which bases report, on loopback by default.
    pub listen: SocketAddr,
    /// A secret that bases send with each report, better in the environment as `STAFFETTA_VNODE_HTTP__TOKEN`: a report is accepted at
    /// `/TOKEN/heartbeat` only. Give it to bases in `koupleless.arklet.http.heartbeat.endpoint`, as `http://ADDRESS:7777/TOKEN`. It is sent
    /// in clear text.
    /// 16 to 128 letters, digits and characters of `-._~`.
    #[schemars(length(min = 16, max = 128), example = &"0123456789abcdef", extend("x-secret" = true))]
    #[serde(skip_serializing, deserialize_with = "token")]
    pub token: Option<Password>,
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
            token: None,
            base_networks: Vec::new(),
            connect_timeout_ms: count(5_000),
            query_timeout_ms: count(10_000),
            operation_timeout_ms: count(300_000),
            max_bases: NonZeroUsize::new(10_000).expect("the defaults are not zero"),
            send_limit: SEND_LIMIT,
        }
    }
}

/// Deserializes a token, and checks that it can be a part of a URL as it is.
fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Password>, D::Error> {
    let token = Option::<Password>::deserialize(deserializer)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_token = |text: &str| (16..=128).contains(&text.len()) && text.bytes().all(allowed);
    if token.as_ref().is_some_and(|token| !is_token(token.expose())) {
        return Err(D::Error::custom("a token has 16 to 128 letters, digits and characters of `-._~`"));
    }
    Ok(token)
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
        assert!(read(json!({ "token": "0123456789abcdef" })).is_ok());
        for token in ["short", "0123456789abc/ef", ""] {
            let error = read(json!({ "token": token })).unwrap_err().to_string();
            assert!(error.contains("16 to 128") && (token.is_empty() || !error.contains(token)), "{error}");
        }
        for wrong in [json!({ "query_timeout_ms": 0 }), json!({ "max_bases": 0 }), json!({ "port": 1 })] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
