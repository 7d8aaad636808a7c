//! The description with which a machine announces itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The description with which a machine announces itself: its name, version, state, addresses and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// The name, version and state of the machine.
    pub metadata: NodeMetadata,
    /// The addresses of the machine.
    #[serde(default)]
    pub network_info: NetworkInfo,
    /// Additional labels of the machine's Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_labels: BTreeMap<String, String>,
    /// Data of the tunnel about the machine, such as the gateway behind which it is. The controller keeps it in an annotation of the node, and passes it to
    /// [`on_node_start`](super::Tunnel::on_node_start) after a restart or a take-over. It must contain no secret, and has at most
    /// [`MAX_TUNNEL_DATA`] bytes as JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub tunnel_data: Map<String, Value>,
}

/// The maximum size of [`NodeDescription::tunnel_data`] as JSON, in bytes.
pub const MAX_TUNNEL_DATA: usize = 4096;

/// The name, version and state of a machine. The name and the version become labels of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMetadata {
    /// The name of the machine, which machines of the same kind share.
    #[serde(default)]
    pub name: String,
    /// The version of the machine's software.
    #[serde(default)]
    pub version: String,
    /// The state of the machine: it accepts containers or it ends.
    pub status: NodeActivation,
}

/// The state that a machine reports about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeActivation {
    /// The machine accepts containers: its node exists.
    Activated,
    /// The machine ends: its node is removed.
    Deactivated,
}

/// The addresses of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// The IP address of the machine: the address of type `InternalIP` of its Node; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<IpAddr>,
    /// The host name of the machine: the address of type `Hostname` of its Node; empty if there is none.
    #[serde(default)]
    pub host_name: String,
    /// The TCP port at which the machine accepts the requests of its tunnel; `None` if it accepts no connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_is_plain_data() {
        let sample = json!({
            "metadata": { "name": "shop", "version": "1.1.1", "status": "activated" },
            "network_info": { "node_ip": "192.0.2.7", "host_name": "shop-0" },
            "custom_labels": { "base.koupleless.io/cluster-name": "shop" },
        });
        let node: NodeDescription = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(node.metadata.status, NodeActivation::Activated);
        assert_eq!(node.network_info.node_ip, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(serde_json::to_value(&node).unwrap(), sample);
    }

    #[test]
    fn data_of_the_tunnel_is_a_key_of_its_own() {
        let sample = json!({ "metadata": { "name": "", "version": "", "status": "activated" },
            "network_info": { "host_name": "" }, "tunnel_data": { "gateway": { "port": 7 } } });
        let node: NodeDescription = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(node.tunnel_data["gateway"]["port"], 7);
        assert_eq!(serde_json::to_value(&node).unwrap(), sample);
    }

    #[test]
    fn an_unknown_state_and_a_malformed_address_are_rejected() {
        let node = |status: &str, ip: &str| {
            let node = json!({ "metadata": { "status": status }, "network_info": { "node_ip": ip } });
            serde_json::from_value::<NodeDescription>(node)
        };
        assert!(node("deactivated", "2001:db8::1").is_ok());
        assert!(node("asleep", "192.0.2.7").is_err() && node("activated", "192.0.2.7/x").is_err());
    }
}
