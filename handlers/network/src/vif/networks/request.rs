//! Parsing of the annotation in which a pod requests additional networks.

use serde::Deserialize;
use serde_json::from_str;

use crate::os_vif::MAX_ADDITIONAL_VIFS;

/// The longest name of a network interface, in bytes: `IFNAMSIZ` of Linux without the final zero.
const MAX_INTERFACE_NAME: usize = 15;

/// The reason why the additional networks that a pod requests are not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// The annotation is neither a JSON list nor a list of names, or it contains an invalid name, two interfaces
    /// with the same name, or too many networks. The value describes the problem.
    #[error(
        "the annotation k8s.v1.cni.cncf.io/networks is neither a JSON list nor of the form `namespace/name@interface, name`: {0}"
    )]
    Malformed(String),
    /// The network, which the value names, belongs to a namespace whose networks the pod may not use.
    #[error(
        "the pod may not use the NetworkAttachmentDefinition {0} of another namespace (`additional_networks.namespace_isolation`)"
    )]
    Isolated(String),
    /// The network does not exist, its definition is invalid, or it requires another VIF driver than the
    /// one of the pod's node. The value describes the problem.
    #[error("{0}")]
    Unavailable(String),
}

/// A request for an additional network: the network's namespace and name, and the interface in the
/// pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkRequest {
    /// The namespace of the requested `NetworkAttachmentDefinition`.
    pub(super) namespace: String,
    /// The name of the requested `NetworkAttachmentDefinition`.
    pub(super) name: String,
    /// The name of the interface in the pod.
    pub(super) interface: String,
}

/// An entry of the annotation `k8s.v1.cni.cncf.io/networks` in its JSON form. Fields for other CNI plug-ins
/// are ignored.
#[derive(Deserialize)]
struct NetworkEntry {
    name: String,
    namespace: Option<String>,
    interface: Option<String>,
}

/// Parses the annotation `k8s.v1.cni.cncf.io/networks` of a pod in `namespace`: a JSON list, or
/// `namespace/name@interface, name`. An interface without a name becomes `eth1`, `eth2` and so on, by its
/// position in the list. Returns [`NetworksError::Malformed`] for a malformed list, for an invalid name, for
/// two interfaces with the same name, and for more than 16 networks.
pub(super) fn parse(text: &str, namespace: &str) -> Result<Vec<NetworkRequest>, NetworksError> {
    let malformed = |problem: &dyn ToString| NetworksError::Malformed(problem.to_string());
    let text = text.trim();
    let entries: Vec<NetworkEntry> = if text.starts_with('[') {
        from_str(text).map_err(|error| malformed(&error))?
    } else {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(parse_short).collect()
    };
    if entries.len() > MAX_ADDITIONAL_VIFS {
        let count = entries.len();
        return Err(malformed(&format!(
            "{count} networks are requested; the maximum is {MAX_ADDITIONAL_VIFS}"
        )));
    }
    let mut requests: Vec<NetworkRequest> = Vec::with_capacity(entries.len());
    for (position, entry) in entries.into_iter().enumerate() {
        let NetworkEntry { name, namespace: other, interface } = entry;
        let interface = interface.unwrap_or_else(|| format!("eth{}", position + 1));
        let is_name = |text: &str| !text.is_empty() && !text.contains(['/', '@', ' ']);
        let is_interface =
            is_name(&interface) && interface.len() <= MAX_INTERFACE_NAME && interface != "eth0";
        if !is_name(&name) || !is_interface {
            return Err(malformed(&format!("`{name}` as `{interface}`")));
        }
        if requests.iter().any(|other| other.interface == interface) {
            return Err(malformed(&format!("two interfaces have the name `{interface}`")));
        }
        let namespace = other.unwrap_or_else(|| namespace.to_owned());
        requests.push(NetworkRequest { namespace, name, interface });
    }
    Ok(requests)
}

/// Splits an entry of the form `namespace/name@interface`. Namespace and interface are optional.
fn parse_short(part: &str) -> NetworkEntry {
    let (part, interface) = part.split_once('@').map_or((part, None), |(part, name)| (part, Some(name)));
    let (namespace, name) = part.split_once('/').map_or((None, part), |(space, name)| (Some(space), name));
    let owned = |text: &str| text.to_owned();
    NetworkEntry { name: owned(name), namespace: namespace.map(owned), interface: interface.map(owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(text: &str) -> Vec<String> {
        let line =
            |request: NetworkRequest| format!("{}/{} {}", request.namespace, request.name, request.interface);
        parse(text, "default").unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(requests("blue"), ["default/blue eth1"]);
        assert_eq!(requests(" red/blue@net5, green "), ["red/blue net5", "default/green eth2"]);
        let json =
            r#"[{"name":"blue","ips":["10.0.0.1"]},{"name":"green","namespace":"red","interface":"net7"}]"#;
        assert_eq!(requests(json), ["default/blue eth1", "red/green net7"]);
        assert_eq!(requests(""), [""; 0]);
    }

    #[test]
    fn malformed_requests_are_refused() {
        let long = format!("[{}]", vec![r#"{"name":"a"}"#; 17].join(","));
        for text in
            ["[", "[5]", "a@eth0", "a@eth2,b", "a@", "/", "a/b/c", "a b", "a@sixteencharacters", &long]
        {
            assert!(matches!(parse(text, "default"), Err(NetworksError::Malformed(_))), "{text}");
        }
    }
}
