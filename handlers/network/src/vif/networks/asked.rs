//! What a pod asks for.

use serde::Deserialize;
use serde_json::from_str;

use crate::os_vif::MOST_FURTHER as MOST;

/// How long the name of an interface may be (`IFNAMSIZ` of Linux, less the end).
const LONGEST: usize = 15;

/// What a pod asks for cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// The annotation of the pod cannot be read.
    #[error(
        "the annotation k8s.v1.cni.cncf.io/networks is neither a JSON list nor of the form `namespace/name@interface, name`: {0}"
    )]
    Malformed(String),
    /// There is no such network.
    #[error("there is no NetworkAttachmentDefinition {0}")]
    Unknown(String),
    /// The network says nothing that can be understood.
    #[error("the NetworkAttachmentDefinition {name} names no subnet: {wrong}")]
    Undefined {
        /// Which.
        name: String,
        /// What is wrong with it.
        wrong: String,
    },
    /// The network wants another VIF driver.
    #[error(
        "the network of interface {interface} wants the VIF driver `{driver}`, and that of the node is another one"
    )]
    Driver {
        /// The interface.
        interface: String,
        /// The driver.
        driver: String,
    },
}

/// A network that a pod asks for, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) interface: String,
}

/// An entry of the JSON form. What else may be in it is for other plug-ins.
#[derive(Deserialize)]
struct Entry {
    name: String,
    namespace: Option<String>,
    interface: Option<String>,
}

/// What a pod of `namespace` asks for in `text`. Interfaces without a name are `eth1`, `eth2` ... by their place.
pub(super) fn asked(text: &str, namespace: &str) -> Result<Vec<Asked>, NetworksError> {
    let malformed = |wrong: &dyn ToString| NetworksError::Malformed(wrong.to_string());
    let text = text.trim();
    let entries: Vec<Entry> = if text.starts_with('[') {
        from_str(text).map_err(|error| malformed(&error))?
    } else {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(short).collect()
    };
    if entries.len() > MOST {
        return Err(malformed(&format!("{} networks are asked for, and {MOST} is the most", entries.len())));
    }
    let mut asked: Vec<Asked> = Vec::with_capacity(entries.len());
    for (place, Entry { name, namespace: other, interface }) in entries.into_iter().enumerate() {
        let interface = interface.unwrap_or_else(|| format!("eth{}", place + 1));
        let is_name = |text: &str| !text.is_empty() && !text.contains(['/', '@', ' ']);
        if !is_name(&name) || !is_name(&interface) || interface.len() > LONGEST || interface == "eth0" {
            return Err(malformed(&format!("`{name}` as `{interface}`")));
        }
        if asked.iter().any(|before| before.interface == interface) {
            return Err(malformed(&format!("two interfaces have the name `{interface}`")));
        }
        asked.push(Asked { namespace: other.unwrap_or_else(|| namespace.to_owned()), name, interface });
    }
    Ok(asked)
}

/// `namespace/name@interface`.
fn short(part: &str) -> Entry {
    let (part, interface) = part.split_once('@').map_or((part, None), |(part, name)| (part, Some(name)));
    let (namespace, name) = part.split_once('/').map_or((None, part), |(place, name)| (Some(place), name));
    let owned = |text: &str| text.to_owned();
    Entry { name: owned(name), namespace: namespace.map(owned), interface: interface.map(owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let line = |asked: Asked| format!("{}/{} {}", asked.namespace, asked.name, asked.interface);
        asked(text, "default").unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(told("blue"), ["default/blue eth1"]);
        assert_eq!(told(" red/blue@net5, green "), ["red/blue net5", "default/green eth2"]);
        let json =
            r#"[{"name":"blue","ips":["10.0.0.1"]},{"name":"green","namespace":"red","interface":"net7"}]"#;
        assert_eq!(told(json), ["default/blue eth1", "red/green net7"]);
        assert_eq!(told(""), [""; 0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = format!("[{}]", vec![r#"{"name":"a"}"#; 17].join(","));
        for text in
            ["[", "[5]", "a@eth0", "a@eth2,b", "a@", "/", "a/b/c", "a b", "a@sixteencharacters", &long]
        {
            assert!(matches!(asked(text, "default"), Err(NetworksError::Malformed(_))), "{text}");
        }
    }
}
