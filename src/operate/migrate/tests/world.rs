//! Objects of Kubernetes and of the cloud, as Kuryr leaves them.

use serde_json::{Value, json};
use staffetta_driver::{ExistingAttachment, ExistingMark, ExistingPort};

use crate::operate::migrate::plan::{MigrationStep, plan};
use crate::operate::migrate::read::ClusterState;

pub(super) const NODE: &str = "node-1";

/// An object of `os_vif` in its envelope.
fn envelope(name: &str, version: &str, data: &Value) -> Value {
    json!({ "versioned_object.name": name, "versioned_object.namespace": "os_vif",
        "versioned_object.version": version, "versioned_object.data": data, "versioned_object.changes": ["id"] })
}

/// A VIF of Kuryr with the port `port` and the address `ip`.
pub(super) fn vif(port: &str, ip: &str) -> Value {
    vif_of("VIFOpenVSwitch", port, ip, json!({ "vif_name": "tap1", "bridge_name": "br-int" }))
}

pub(super) fn vif_of(class: &str, port: &str, ip: &str, more: Value) -> Value {
    let list = |class: &str, objects: Value| {
        envelope(&format!("{class}List"), "1.0", &json!({ "objects": objects }))
    };
    let ips = list("FixedIP", json!([envelope("FixedIP", "1.0", &json!({ "address": ip }))]));
    let subnet = json!({ "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dns": [], "routes": list("Route", json!([])),
        "ips": ips });
    let network = json!({ "id": "net", "bridge": "br-int", "label": "pods", "mtu": 1450, "multi_host": false,
        "should_provide_bridge": false, "should_provide_vlan": false,
        "subnets": list("Subnet", json!([envelope("Subnet", "1.0", &subnet)])) });
    let mut data = json!({ "id": port, "address": mac(port), "active": true, "plugin": "ovs",
        "has_traffic_filtering": true, "preserve_on_delete": false, "network": envelope("Network", "1.1", &network) });
    extend(&mut data, more);
    envelope(class, "1.0", &data)
}

/// Adds the fields of another object to an object.
pub(super) fn extend(object: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("{more} is no object") };
    object.as_object_mut().unwrap().extend(more);
}

/// The MAC address of a port.
fn mac(port: &str) -> String {
    format!("fa:16:3e:00:00:{:02x}", port.bytes().fold(0_u8, u8::wrapping_add))
}

/// The annotation of Kuryr's first releases.
pub(super) fn annotation(vif: &Value) -> String {
    envelope("PodState", "1.0", &json!({ "additional_vifs": {}, "default_vif": vif })).to_string()
}

/// A running pod with the address `ip`; its UID is `uid-NAME`.
pub(super) fn pod(name: &str, ip: &str, metadata: Value) -> Value {
    let mut all =
        json!({ "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" });
    extend(&mut all, metadata);
    json!({ "metadata": all, "spec": { "nodeName": NODE, "containers": [] },
        "status": { "phase": "Running", "podIP": ip, "hostIP": "192.0.2.1" } })
}

/// The finalizer of Kuryr on a pod.
pub(super) fn theirs() -> Value {
    json!({ "finalizers": ["kuryr.openstack.org/pod-finalizer"] })
}

/// The `KuryrPort` of a pod.
pub(super) fn kuryr_port(name: &str, vifs: Value) -> Value {
    let mut object = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrPort",
        "metadata": { "namespace": "shop", "name": name, "uid": format!("kp-{name}"), "resourceVersion": "1",
            "finalizers": ["kuryr.openstack.org/kuryrport-finalizer"] },
        "spec": { "podUid": format!("uid-{name}"), "podNodeName": NODE }, "status": {} });
    object["status"]["vifs"] = vifs;
    object
}

/// The status of a `KuryrPort` with one VIF.
pub(super) fn eth0(vif: &Value) -> Value {
    json!({ "eth0": { "default": true, "vif": vif } })
}

/// A port of Kuryr, of a pod or of a pool, that is bound on the node and active.
pub(super) fn port(id: &str, ip: &str, pod: Option<&str>) -> ExistingPort {
    ExistingPort {
        id: id.into(),
        mac_address: mac(id),
        ips: vec![ip.parse().unwrap()],
        active: true,
        pod: pod.map(|name| format!("uid-{name}").into()),
        subnets: vec!["pods".into()],
        attachment: ExistingAttachment::Host(NODE.into()),
        security_groups: Vec::new(),
        mark: ExistingMark::Unmarked,
    }
}

/// A cluster with one node, in which all handlers are enabled.
pub(super) fn cluster() -> ClusterState {
    let handlers = ["vif", "lb", "lbaasspec", "namespace", "policy"];
    ClusterState {
        nodes: [NODE.to_owned()].into(),
        node_ips: ["192.0.2.1".parse().unwrap()].into(),
        handlers: handlers.map(str::to_owned).into(),
        vif_drivers: ["neutron-vif".to_owned()].into(),
        pod_subnet: Some("pods".into()),
        ..ClusterState::default()
    }
}

/// Adds objects to a cluster.
impl ClusterState {
    pub(super) fn with_pod(mut self, pod: Value) -> Self {
        self.pods.push(serde_json::from_value(pod).unwrap());
        self
    }

    pub(super) fn with_kuryr_port(mut self, port: Value) -> Self {
        let name = port["metadata"]["name"].as_str().unwrap().to_owned();
        self.kuryr.ports.insert(("shop".into(), name), serde_json::from_value(port).unwrap());
        self
    }

    pub(super) fn with_ports(mut self, ports: impl IntoIterator<Item = ExistingPort>) -> Self {
        self.ports.extend(ports);
        self
    }

    /// The plan as one line for each object.
    pub(super) fn planned(&self) -> Vec<String> {
        let lines = plan(self, false).into_iter().map(|planned| {
            let result = match &planned.steps {
                Ok(steps) => steps.iter().map(MigrationStep::describe).collect::<Vec<_>>().join(", "),
                Err(obstacle) => obstacle.to_string(),
            };
            format!("{} {}: {result}", planned.kind, planned.key.1)
        });
        lines.collect()
    }
}
