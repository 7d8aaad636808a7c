//! Who answers for a service: what an `EndpointSlice` or an `Endpoints` object says, less what nobody here needs.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Endpoints, ObjectReference};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use staffetta_driver::Protocol;

/// Addresses that have the same ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointSet {
    pub(super) ports: Vec<EndpointPort>,
    /// Those that are ready.
    pub(super) addresses: Vec<EndpointAddress>,
    /// Those that still serve while they end.
    pub(super) ending: Vec<EndpointAddress>,
}

/// A port of a pod, under the name that the service gives it; empty for the one port without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointPort {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

/// An address that takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    pub(super) ip: IpAddr,
    /// Whose it is: `namespace/pod`, or `namespace/address` where nobody said.
    pub(super) target: String,
}

/// The endpoints of a slice, as kube-proxy takes them: of each endpoint the first address, if the endpoint is ready or
/// nobody says that it is not, or if it ends and still serves. A slice of host names has none.
pub(super) fn of_slice(slice: &EndpointSlice) -> Vec<EndpointSet> {
    let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
    let ports = slice.ports.iter().flatten();
    let ports =
        ports.filter_map(|port| endpoint_port(port.name.as_deref(), port.protocol.as_deref(), port.port?));
    let address = |endpoint: &&Endpoint| {
        let text = endpoint.addresses.first()?;
        endpoint_address(text, endpoint.target_ref.as_ref(), namespace)
    };
    let (ready, others): (Vec<_>, Vec<_>) = slice.endpoints.iter().partition(|endpoint| is_ready(endpoint));
    let ending: Vec<_> = others.into_iter().filter(|endpoint| ends_and_serves(endpoint)).collect();
    let addresses = |endpoints: &[&Endpoint]| endpoints.iter().filter_map(address).collect();
    set(ports.collect(), addresses(&ready), addresses(&ending))
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn ends_and_serves(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| {
        conditions.terminating.unwrap_or(false) && conditions.serving.unwrap_or(true)
    })
}

/// The endpoints of an `Endpoints` object: its ready addresses, each subset with its own ports.
pub(super) fn of_endpoints(endpoints: &Endpoints) -> Vec<EndpointSet> {
    let namespace = endpoints.metadata.namespace.as_deref().unwrap_or_default();
    let subsets = endpoints.subsets.iter().flatten();
    let sets = subsets.flat_map(|subset| {
        let ports = subset.ports.iter().flatten();
        let ports =
            ports.filter_map(|port| endpoint_port(port.name.as_deref(), port.protocol.as_deref(), port.port));
        let addresses = subset.addresses.iter().flatten();
        let addresses = addresses
            .filter_map(|address| endpoint_address(&address.ip, address.target_ref.as_ref(), namespace));
        set(ports.collect(), addresses.collect(), Vec::new())
    });
    sets.collect()
}

fn set(
    ports: Vec<EndpointPort>,
    addresses: Vec<EndpointAddress>,
    ending: Vec<EndpointAddress>,
) -> Vec<EndpointSet> {
    let is_empty = ports.is_empty() || addresses.is_empty() && ending.is_empty();
    if is_empty { Vec::new() } else { vec![EndpointSet { ports, addresses, ending }] }
}

fn endpoint_port(name: Option<&str>, protocol: Option<&str>, port: i32) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: name.unwrap_or_default().to_owned(),
        protocol: protocol.unwrap_or("TCP").parse().ok()?,
        port: u16::try_from(port).ok()?,
    })
}

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

    fn ending(sets: &[EndpointSet]) -> Vec<&str> {
        sets.iter().flat_map(|set| &set.ending).map(|address| address.target.as_str()).collect()
    }

    fn slice(address_type: &str, endpoints: &Value, ports: &Value) -> Vec<EndpointSet> {
        let slice = json!({ "metadata": { "namespace": "default" }, "addressType": address_type,
            "endpoints": endpoints, "ports": ports });
        of_slice(&serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn an_endpoint_counts_when_it_is_ready_or_nobody_says_that_it_is_not() {
        let endpoint = |name: &str, conditions: Value| {
            json!({ "addresses": ["10.1.0.1", "10.1.0.9"], "conditions": conditions,
                "targetRef": { "kind": "Pod", "namespace": "default", "name": name } })
        };
        let sets = slice(
            "IPv4",
            &json!([
                endpoint("ready", json!({ "ready": true })),
                endpoint("unsaid", json!({})),
                endpoint("starting", json!({ "ready": false })),
                endpoint("draining", json!({ "ready": false, "serving": true, "terminating": true })),
            ]),
            &json!([{ "name": "http", "port": 8080 }]),
        );
        assert_eq!(targets(&sets), ["default/ready", "default/unsaid"]);
        assert_eq!(
            sets[0].ports,
            [EndpointPort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }]
        );
    }

    #[test]
    fn an_endpoint_that_ends_is_told_of_as_long_as_it_serves_and_one_that_is_published_unready_is_ready() {
        let endpoint = |name: &str, conditions: Value| json!({ "addresses": ["10.1.0.1"], "conditions": conditions, "targetRef": { "name": name } });
        let serves = |ready: Value, serving: Value, terminating: Value| json!({ "ready": ready, "serving": serving, "terminating": terminating });
        let (yes, no, unsaid) = (json!(true), json!(false), Value::Null);
        let endpoints = json!([
            endpoint("serves", serves(no.clone(), yes.clone(), yes.clone())),
            endpoint("may-serve", serves(no.clone(), unsaid.clone(), yes.clone())),
            endpoint("over", serves(no.clone(), no.clone(), yes.clone())),
            endpoint("starting", serves(no.clone(), no.clone(), no.clone())),
            endpoint("unsaid", serves(no, yes.clone(), unsaid)),
            endpoint("published", serves(yes.clone(), json!(false), yes)),
        ]);
        let sets = slice("IPv4", &endpoints, &json!([{ "port": 80 }]));
        assert_eq!(ending(&sets), ["default/serves", "default/may-serve"]);
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
    fn host_names_and_slices_without_ports_or_endpoints_say_nothing() {
        let ports = json!([{ "name": "http", "port": 80 }]);
        assert_eq!(slice("FQDN", &json!([{ "addresses": ["example.com"] }]), &ports), []);
        assert_eq!(slice("IPv4", &json!([{ "addresses": ["10.1.0.1"] }]), &json!([])), []);
        assert_eq!(slice("IPv4", &json!([{ "addresses": ["10.1.0.1"] }]), &json!([{ "name": "all" }])), []);
        assert_eq!(slice("IPv4", &json!([]), &ports), []);
        assert_eq!(of_slice(&EndpointSlice::default()), []);
        assert_eq!(of_endpoints(&Endpoints::default()), []);
    }

    #[test]
    fn each_subset_of_endpoints_has_its_own_ports_and_ready_addresses() {
        let endpoints = json!({ "metadata": { "namespace": "default" }, "subsets": [
            { "addresses": [{ "ip": "10.1.0.1", "targetRef": { "namespace": "default", "name": "a" } }],
              "notReadyAddresses": [{ "ip": "10.1.0.2" }], "ports": [{ "name": "http", "port": 8080 }] },
            { "addresses": [{ "ip": "10.1.0.3" }], "ports": [{ "name": "http", "port": 9090 }] } ] });
        let sets = of_endpoints(&serde_json::from_value(endpoints).unwrap());
        assert_eq!(targets(&sets), ["default/a", "default/10.1.0.3"]);
        assert_eq!((sets[0].ports[0].port, sets[1].ports[0].port), (8080, 9090));
    }
}
