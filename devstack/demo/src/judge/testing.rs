//! Objects for tests, in the state that the API shows after the demo has converged.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

fn versioned(data: &Value) -> Value {
    json!({ "versioned_object.data": data })
}

/// A VIF with this address in the subnet 10.1.0.0/24. Its id follows from the address.
pub(crate) fn vif_annotation(active: bool, address: &str) -> String {
    let ips = versioned(&json!({ "objects": [versioned(&json!({ "address": address }))] }));
    let subnet = versioned(&json!({ "cidr": "10.1.0.0/24", "ips": ips }));
    let network = versioned(&json!({ "subnets": versioned(&json!({ "objects": [subnet] })) }));
    let vif = versioned(&json!({ "id": format!("port-{address}"), "active": active, "network": network }));
    versioned(&json!({ "default_vif": vif })).to_string()
}

/// A pod that runs with this address.
pub(crate) fn pod(name: &str, address: &str) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": name,
            "annotations": { "openstack.org/kuryr-vif": vif_annotation(true, address) } },
        "spec": { "nodeName": "n", "containers": [{ "name": "web", "image": "web:1" }] },
        "status": { "phase": "Running", "podIP": address },
    })
}

/// A deployment all of whose pods run.
pub(crate) fn deployment(replicas: i32) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "web", "generation": 2 },
        "spec": { "replicas": replicas, "selector": {}, "template": {} },
        "status": { "observedGeneration": 2, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas },
    })
}

/// A service of type `LoadBalancer` with this member behind its port 80.
pub(crate) fn service(member: &str) -> Value {
    let spec = versioned(&json!({ "ports": [versioned(&json!({ "port": 80 }))] }));
    let state = versioned(&json!({
        "loadbalancer": versioned(&json!({ "ip": "10.96.0.9" })),
        "listeners": [versioned(&json!({}))],
        "members": [versioned(&json!({ "ip": member, "port": 8080 }))],
        "service_pub_ip_info": versioned(&json!({ "ip_addr": "203.0.113.2" })),
    }));
    json!({
        "metadata": { "namespace": "shop", "name": "web", "annotations": {
            "openstack.org/kuryr-lbaas-spec": spec.to_string(),
            "openstack.org/kuryr-lbaas-state": state.to_string(),
        } },
        "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.9", "selector": { "app": "web" },
            "ports": [{ "port": 80, "targetPort": 8080 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.2" }] } },
    })
}

/// The endpoints of that service.
pub(crate) fn slice(address: &str, ready: bool) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "port": 8080 }],
        "endpoints": [{ "addresses": [address], "conditions": { "ready": ready } }],
    })
}
