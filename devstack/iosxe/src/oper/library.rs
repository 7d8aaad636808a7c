//! `ietf-yang-library:modules-state` (RFC 7895): the list of the YANG modules that the device serves.

use serde_json::{Value, json};

const MODULES: [(&str, &str); 5] = [
    ("Cisco-IOS-XE-app-hosting-cfg", "2022-11-01"),
    ("Cisco-IOS-XE-app-hosting-oper", "2023-03-01"),
    ("Cisco-IOS-XE-arp-oper", "2022-11-01"),
    ("Cisco-IOS-XE-device-hardware-oper", "2025-03-01"),
    ("Cisco-IOS-XE-rpc", "2025-07-10"),
];

/// Generates the data below `modules-state`.
pub(crate) fn library() -> Value {
    let module = |(name, revision): (&str, &str)| {
        json!({
            "name": name,
            "revision": revision,
            "namespace": format!("http://cisco.com/ns/yang/{name}"),
            "conformance-type": "implement",
        })
    };
    json!({ "module-set-id": "1", "module": MODULES.map(module) })
}
