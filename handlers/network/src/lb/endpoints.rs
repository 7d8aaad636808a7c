//! The endpoints of a service, reduced to the fields that a load balancer needs.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Endpoints, ObjectReference};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use staffetta_driver::Protocol;
use staffetta_handler::OrderingKey;

/// The key of the label in which an `EndpointSlice` names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The namespace and name of a service, by which its `EndpointSlice`s and its `Endpoints` refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceKey {
    /// The namespace of the service.
    pub(super) namespace: String,
    /// The name of the service.
    pub(super) name: String,
}

impl ServiceKey {
    /// Creates the key of the service `name`; a missing namespace is empty.
    pub(super) fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.unwrap_or_default().to_owned(), name: name.to_owned() }
    }

    /// Returns the key with the namespace and name in this metadata.
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Returns the key of the event queue that the service shares with its endpoints.
    pub(super) fn ordering(&self) -> OrderingKey {
        OrderingKey::of((&self.namespace, &self.name))
    }
}

/// Endpoints of a service that have the same ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointSet {
    /// The ports that each endpoint of the set serves.
    pub(super) ports: Vec<EndpointPort>,
    /// The addresses of ready endpoints.
    pub(super) addresses: Vec<EndpointAddress>,
    /// The addresses of terminating endpoints that still serve.
    pub(super) terminating: Vec<EndpointAddress>,
}

/// A port of an endpoint. It has the same name as the port of the service that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointPort {
    /// The name of the service's port; empty if that port has no name.
    pub(super) name: String,
    /// The transport protocol of the port.
    pub(super) protocol: Protocol,
    /// The port number at the endpoint, which is usually a pod.
    pub(super) port: u16,
}

/// The IP address of an endpoint, with the name of its target, which is usually a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    /// The IP address of the endpoint.
    pub(super) ip: IpAddr,
    /// The target in the form `namespace/name`, or `namespace/address` if the endpoint has no target
    /// reference.
    pub(super) target: String,
}

/// A kind whose objects list endpoints of a service: `EndpointSlice` or `Endpoints`.
pub(super) trait EndpointsKind: Resource<DynamicType = ()> + Send + Sync + 'static {
    /// Returns the service of the object, or `None` if the object belongs to no service.
    fn service(&self) -> Option<ServiceKey>;

    /// Returns the endpoints in the object, grouped by equal ports.
    fn endpoint_sets(&self) -> Vec<EndpointSet>;
}

/// As in kube-proxy, only the first address of an endpoint counts, if the endpoint is ready, has no
/// readiness condition, or terminates and still serves. A slice of host names has no endpoints.
impl EndpointsKind for EndpointSlice {
    fn service(&self) -> Option<ServiceKey> {
        let name = self.labels().get(SERVICE_NAME)?;
        Some(ServiceKey::new(self.metadata.namespace.as_deref(), name))
    }

    fn endpoint_sets(&self) -> Vec<EndpointSet> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let ports = self.ports.iter().flatten();
        let ports = ports
            .filter_map(|port| endpoint_port(port.name.as_deref(), port.protocol.as_deref(), port.port?));
        let addresses = |serves: fn(&Endpoint) -> bool| {
            let endpoints = self.endpoints.iter().filter(|endpoint| serves(endpoint));
            let addresses = endpoints.filter_map(|endpoint| {
                endpoint_address(endpoint.addresses.first()?, endpoint.target_ref.as_ref(), namespace)
            });
            addresses.collect()
        };
        let terminating = addresses(|endpoint| !is_ready(endpoint) && terminates_and_serves(endpoint));
        vec![EndpointSet { ports: ports.collect(), addresses: addresses(is_ready), terminating }]
    }
}

/// Returns `true` if the endpoint is ready or has no readiness condition.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// Returns `true` if the endpoint is terminating and still serves.
fn terminates_and_serves(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| {
        conditions.terminating.unwrap_or(false) && conditions.serving.unwrap_or(true)
    })
}

/// Each subset of an `Endpoints` object has its own ports. Only its ready addresses count.
impl EndpointsKind for Endpoints {
    fn service(&self) -> Option<ServiceKey> {
        Some(ServiceKey::of(&self.metadata))
    }

    fn endpoint_sets(&self) -> Vec<EndpointSet> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let sets = self.subsets.iter().flatten().map(|subset| {
            let ports = subset.ports.iter().flatten();
            let ports = ports
                .filter_map(|port| endpoint_port(port.name.as_deref(), port.protocol.as_deref(), port.port));
            let addresses = subset.addresses.iter().flatten();
            let addresses = addresses
                .filter_map(|address| endpoint_address(&address.ip, address.target_ref.as_ref(), namespace));
            EndpointSet { ports: ports.collect(), addresses: addresses.collect(), terminating: Vec::new() }
        });
        sets.collect()
    }
}

/// Parses a port of an endpoint. The protocol defaults to TCP. Returns `None` if the port is invalid.
fn endpoint_port(name: Option<&str>, protocol: Option<&str>, port: i32) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: name.unwrap_or_default().to_owned(),
        protocol: protocol.unwrap_or("TCP").parse().ok()?,
        port: u16::try_from(port).ok()?,
    })
}

/// Parses the address of an endpoint. Returns `None` if `text` is not an IP address, for example a host name.
fn endpoint_address(
    text: &str,
    target: Option<&ObjectReference>,
    namespace: &str,
) -> Option<EndpointAddress> {
    let ip = text.parse().ok()?;
    let namespace = target.and_then(|target| target.namespace.as_deref()).unwrap_or(namespace);
    let name = target.and_then(|target| target.name.as_deref()).unwrap_or(text);
    Some(EndpointAddress { ip, target: format!("{namespace}/{name}") })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn targets(sets: &[EndpointSet]) -> Vec<&str> {
        sets.iter().flat_map(|set| &set.addresses).map(|address| address.target.as_str()).collect()
    }

    fn terminating(sets: &[EndpointSet]) -> Vec<&str> {
        sets.iter().flat_map(|set| &set.terminating).map(|address| address.target.as_str()).collect()
    }

    fn slice(address_type: &str, endpoints: &Value, ports: &Value) -> Vec<EndpointSet> {
        let slice = json!({ "metadata": { "namespace": "default" }, "addressType": address_type,
            "endpoints": endpoints, "ports": ports });
        serde_json::from_value::<EndpointSlice>(slice).unwrap().endpoint_sets()
    }

    #[test]
    fn an_endpoint_counts_when_it_is_ready_or_has_no_condition() {
        let endpoint = |name: &str, conditions: Value| {
            json!({ "addresses": ["10.1.0.1", "10.1.0.9"], "conditions": conditions,
                "targetRef": { "kind": "Pod", "namespace": "default", "name": name } })
        };
        let sets = slice(
            "IPv4",
            &json!([
                endpoint("ready", json!({ "ready": true })),
                endpoint("no-condition", json!({})),
                endpoint("starting", json!({ "ready": false })),
                endpoint("draining", json!({ "ready": false, "serving": true, "terminating": true })),
            ]),
            &json!([{ "name": "http", "port": 8080 }]),
        );
        assert_eq!(targets(&sets), ["default/ready", "default/no-condition"]);
        assert_eq!(
            sets[0].ports,
            [EndpointPort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }]
        );
    }

    #[test]
    fn a_terminating_endpoint_is_listed_while_it_serves_and_an_unready_one_that_is_published_is_ready() {
        let endpoint = |name: &str, conditions: Value| json!({ "addresses": ["10.1.0.1"], "conditions": conditions, "targetRef": { "name": name } });
        let serves = |ready: Value, serving: Value, terminating: Value| json!({ "ready": ready, "serving": serving, "terminating": terminating });
        let (yes, no, unset) = (json!(true), json!(false), Value::Null);
        let endpoints = json!([
            endpoint("serves", serves(no.clone(), yes.clone(), yes.clone())),
            endpoint("may-serve", serves(no.clone(), unset.clone(), yes.clone())),
            endpoint("over", serves(no.clone(), no.clone(), yes.clone())),
            endpoint("starting", serves(no.clone(), no.clone(), no.clone())),
            endpoint("no-condition", serves(no, yes.clone(), unset)),
            endpoint("published", serves(yes.clone(), json!(false), yes)),
        ]);
        let sets = slice("IPv4", &endpoints, &json!([{ "port": 80 }]));
        assert_eq!(terminating(&sets), ["default/serves", "default/may-serve"]);
        assert_eq!(targets(&sets), ["default/published"]);
    }

    #[test]
    fn a_target_need_not_be_a_pod_and_a_port_need_not_have_a_name() {
        let endpoints = json!([{ "addresses": ["192.0.2.1"] },
            { "addresses": ["fd00::7"], "targetRef": { "kind": "VirtualMachine", "name": "vm" } }]);
        let sets = slice("IPv4", &endpoints, &json!([{ "port": 53, "protocol": "UDP" }]));
        assert_eq!(targets(&sets), ["default/192.0.2.1", "default/vm"]);
        assert_eq!(sets[0].ports, [EndpointPort { name: String::new(), protocol: Protocol::Udp, port: 53 }]);
    }

    #[test]
    fn host_names_and_ports_without_a_number_are_ignored() {
        let ports = json!([{ "name": "http", "port": 80 }]);
        assert_eq!(targets(&slice("FQDN", &json!([{ "addresses": ["example.com"] }]), &ports)), [""; 0]);
        let sets = slice("IPv4", &json!([{ "addresses": ["10.1.0.1"] }]), &json!([{ "name": "all" }]));
        assert_eq!(sets[0].ports, []);
        assert_eq!(targets(&EndpointSlice::default().endpoint_sets()), [""; 0]);
        assert_eq!(Endpoints::default().endpoint_sets(), []);
    }

    #[test]
    fn each_subset_of_endpoints_has_its_own_ports_and_ready_addresses() {
        let endpoints = json!({ "metadata": { "namespace": "default" }, "subsets": [
            { "addresses": [{ "ip": "10.1.0.1", "targetRef": { "namespace": "default", "name": "a" } }],
              "notReadyAddresses": [{ "ip": "10.1.0.2" }], "ports": [{ "name": "http", "port": 8080 }] },
            { "addresses": [{ "ip": "10.1.0.3" }], "ports": [{ "name": "http", "port": 9090 }] } ] });
        let sets = serde_json::from_value::<Endpoints>(endpoints).unwrap().endpoint_sets();
        assert_eq!(targets(&sets), ["default/a", "default/10.1.0.3"]);
        assert_eq!((sets[0].ports[0].port, sets[1].ports[0].port), (8080, 9090));
    }
}
