//! The reports in which a base introduces itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use staffetta_driver::tunnel::{
    InvalidNodeId, NetworkInfo, NodeActivation, NodeDescription, NodeId, NodeMetadata, QueryBaselineRequest,
};

use super::{CLUSTER_NAME, STACK};

/// The port at which Arklet listens unless its heartbeat names another one.
const DEFAULT_PORT: u16 = 1238;

/// The address that Arklet reports if it finds no IPv4 address but that of loopback.
const UNKNOWN_ADDRESS: &str = "unknown";

/// The properties of a base that do not change (`BaseMetadata`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BaseMetadata {
    identity: String,
    name: String,
    version: String,
    cluster_name: String,
}

impl BaseMetadata {
    /// Returns the id of the base, or an error if the id in the report is not valid.
    pub(crate) fn id(&self) -> Result<NodeId, InvalidNodeId> {
        self.identity.parse()
    }

    /// Returns the id of the base as the report contains it, unchecked.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the query for the modules with which the base starts (its baseline), which are chosen by its name, version and labels.
    pub(crate) fn baseline_request(&self) -> QueryBaselineRequest {
        let mut custom_labels = self.labels();
        custom_labels.insert(STACK.0.to_owned(), STACK.1.to_owned());
        QueryBaselineRequest {
            name: label_value(&self.name),
            version: label_value(&self.version),
            custom_labels,
            custom_taints: Vec::new(),
        }
    }

    /// Returns the labels of the node of the base: the cluster of bases to which it belongs, if the base names a valid one.
    fn labels(&self) -> BTreeMap<String, String> {
        let cluster = label_value(&self.cluster_name);
        if cluster.is_empty() { BTreeMap::new() } else { [(CLUSTER_NAME.to_owned(), cluster)].into() }
    }
}

/// A heartbeat (`BaseStatus`), in the form of Arklet today or of 2024 (`deviceID`, `masterBizInfo`, `networkInfo`).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BaseReport {
    base_metadata: BaseMetadata,
    #[serde(rename = "localIP")]
    local_ip: String,
    local_host_name: String,
    port: Option<u32>,
    state: String,
    #[serde(rename = "deviceID")]
    device_id: String,
    master_biz_info: MasterBiz,
    network_info: BaseNetwork,
}

/// The name, version and state of a base (`masterBizInfo`), in heartbeats of Arklet in 2024.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MasterBiz {
    #[serde(rename = "bizName")]
    name: String,
    #[serde(rename = "bizState")]
    state: String,
    #[serde(rename = "bizVersion")]
    version: String,
}

/// The address of a base (`networkInfo`), in heartbeats of Arklet in 2024.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BaseNetwork {
    #[serde(rename = "localIP")]
    local_ip: String,
    local_host_name: String,
    arklet_port: Option<u32>,
}

impl BaseReport {
    /// Returns the id and the description of the base. The error names the key whose value cannot be used.
    pub(crate) fn read(self) -> Result<(NodeId, NodeDescription), String> {
        let old = self.base_metadata.identity.is_empty() && !self.device_id.is_empty();
        let (metadata, state, ip, host, port) = if old {
            let BaseNetwork { local_ip, local_host_name, arklet_port } = self.network_info;
            let MasterBiz { name, state, version } = self.master_biz_info;
            let identity = self.device_id;
            let metadata = BaseMetadata { identity, name, version, ..BaseMetadata::default() };
            (metadata, state, local_ip, local_host_name, arklet_port)
        } else {
            (self.base_metadata, self.state, self.local_ip, self.local_host_name, self.port)
        };
        let id = metadata.id().map_err(|error| format!("baseMetadata.identity: {error}"))?;
        let status = match state.to_ascii_uppercase().as_str() {
            "ACTIVATED" => NodeActivation::Activated,
            "DEACTIVATED" => NodeActivation::Deactivated,
            _ => {
                let state: String = super::message(&state).chars().take(64).collect();
                return Err(format!("state: {state:?} is neither ACTIVATED nor DEACTIVATED"));
            }
        };
        let port = match port {
            None | Some(0) => DEFAULT_PORT,
            Some(port) => u16::try_from(port).map_err(|_| format!("port: {port} is no TCP port"))?,
        };
        let custom_labels = metadata.labels();
        let (name, version) = (label_value(&metadata.name), label_value(&metadata.version));
        let network_info =
            NetworkInfo { node_ip: address(&ip)?, host_name: host_name(&host), port: Some(port) };
        let metadata = NodeMetadata { name, version, status };
        let tunnel_data = serde_json::Map::new();
        Ok((id, NodeDescription { metadata, network_info, custom_labels, tunnel_data }))
    }
}

/// Parses the IP address in a report; `None` if the text is empty or [`UNKNOWN_ADDRESS`]. The error is a message about a malformed text.
fn address(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() || text == UNKNOWN_ADDRESS {
        return Ok(None);
    }
    let address = text.parse::<IpAddr>().map_err(|_| {
        let text: String = text.chars().take(64).collect();
        format!("localIP: {text:?} is no IP address")
    })?;
    Ok(Some(address.to_canonical()))
}

/// Returns `text` if it is a valid label value of Kubernetes, otherwise an empty string. A base is not rejected for a name that is no valid
/// label value.
fn label_value(text: &str) -> String {
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let bytes = text.as_bytes();
    let valid = bytes.len() <= 63 && outer(bytes.first()) && outer(bytes.last()) && text.bytes().all(allowed);
    if valid { text.to_owned() } else { String::new() }
}

/// Returns `text` if it can be a host name (RFC 1123), otherwise an empty string.
fn host_name(text: &str) -> String {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    if text.len() <= 253 && text.bytes().all(allowed) { text.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(report: Value) -> Result<(NodeId, NodeDescription), String> {
        let report: BaseReport = serde_json::from_value(report).map_err(|error| error.to_string())?;
        report.read()
    }

    #[test]
    fn both_generations_of_heartbeats_are_read() {
        let now = json!({
            "baseMetadata": { "identity": "b-1", "name": "shop", "version": "1.1", "clusterName": "east" },
            "localIP": "192.0.2.7", "localHostName": "shop-0", "port": 1240, "state": "ACTIVATED",
        });
        let (id, node) = read(now).unwrap();
        assert_eq!((id.as_str(), node.network_info.port), ("b-1", Some(1240)));
        assert_eq!(node.custom_labels[CLUSTER_NAME], "east");
        let old = json!({
            "deviceID": "b-1",
            "masterBizInfo": { "bizName": "shop", "bizState": "deactivated", "bizVersion": "1.1", "webContextPath": "/" },
            "networkInfo": { "localIP": "192.0.2.7", "localHostName": "shop-0" },
        });
        let (old_id, old) = read(old).unwrap();
        assert_eq!(
            (&old_id, &old.metadata.name, &old.metadata.version),
            (&id, &node.metadata.name, &node.metadata.version)
        );
        assert_eq!((old.metadata.status, old.network_info.port), (NodeActivation::Deactivated, Some(1238)));
    }

    #[test]
    fn a_report_that_cannot_be_right_is_rejected_by_key() {
        let report = |identity: &str, ip: &str, port: Value, state: &str| {
            read(
                json!({ "baseMetadata": { "identity": identity }, "localIP": ip, "port": port, "state": state }),
            )
        };
        for ip in ["", "unknown"] {
            let (_, node) = report("b", ip, json!(null), "activated").unwrap();
            assert_eq!(node.network_info.node_ip, None, "{ip}");
        }
        for (wrong, key) in [
            (report("../b", "192.0.2.7", json!(1), "ACTIVATED"), "identity"),
            (report("", "192.0.2.7", json!(1), "ACTIVATED"), "identity"),
            (report("b", "shop.example", json!(1), "ACTIVATED"), "localIP"),
            (report("b", "192.0.2.7", json!(65_536), "ACTIVATED"), "port"),
            (report("b", "192.0.2.7", json!(1), "asleep"), "state"),
            (report("b", "192.0.2.7", json!("x"), "ACTIVATED"), "invalid type"),
        ] {
            assert!(wrong.as_ref().unwrap_err().contains(key), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_that_can_be_no_label_is_left_out() {
        let metadata = |name: &str| {
            let metadata: BaseMetadata =
                serde_json::from_value(json!({ "identity": "b", "name": name, "clusterName": name }))
                    .unwrap();
            metadata.baseline_request()
        };
        let request = metadata("shop-1");
        assert_eq!((request.name.as_str(), request.custom_labels.len()), ("shop-1", 2));
        for name in ["-shop", "a b", "x\n", &"x".repeat(64)] {
            let request = metadata(name);
            assert_eq!((request.name.as_str(), request.custom_labels.len()), ("", 1), "{name}");
        }
    }
}
