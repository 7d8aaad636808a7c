//! Objects for tests, parsed from JSON.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

pub(crate) fn shared<K: DeserializeOwned>(json: Value) -> Arc<K> {
    Arc::new(object(json))
}

pub(crate) fn pod(json: Value) -> Pod {
    object(json)
}

/// The annotation of a VIF with these addresses.
pub(crate) fn vif(active: bool, addresses: &[&str]) -> String {
    let data = |data: Value| json!({ "versioned_object.data": data });
    let subnet = |address: &&str| {
        let ips = data(json!({ "objects": [data(json!({ "address": address }))] }));
        data(json!({ "ips": ips }))
    };
    let subnets: Vec<_> = addresses.iter().map(subnet).collect();
    let network = data(json!({ "subnets": data(json!({ "objects": subnets })) }));
    data(json!({ "default_vif": data(json!({ "active": active, "network": network })) })).to_string()
}
