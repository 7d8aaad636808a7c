//! Of a pod what policies look at.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::selector::Labels;
use crate::life::Life;
use crate::load_balancer::Protocol;
use crate::owner::Owner;

/// The name of a port, and its protocol.
pub(super) type PortName = (String, Protocol);

/// Of a pod what policies look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) owner: Owner,
    pub(super) labels: Labels,
    /// Its named ports. Of two of one name and protocol, the first counts.
    pub(super) ports: BTreeMap<PortName, u16>,
    /// Whether policies concern it: it has a network of its own, and is not over.
    pub(super) concerned: bool,
}

impl PodFacts {
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let mut ports = BTreeMap::new();
        // A container that starts before the others and stays is one of the init containers.
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let stays = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = spec.map(|spec| &spec.containers).into_iter().flatten().chain(stays);
        for (name, number) in containers.flat_map(named) {
            ports.entry(name).or_insert(number);
        }
        Self {
            owner: Owner::of(&pod.metadata),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            ports,
            concerned: Life::of(pod).has_network(),
        }
    }
}

/// The named ports of a container.
fn named(container: &Container) -> impl Iterator<Item = (PortName, u16)> {
    container.ports.iter().flatten().filter_map(|port| {
        let protocol = port.protocol.as_deref().map_or(Ok(Protocol::Tcp), str::parse).ok()?;
        Some(((port.name.clone()?, protocol), port.container_port.try_into().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_named_ports_of_a_pod_are_those_of_its_lasting_containers() {
        let pod = json!({ "metadata": { "name": "web" }, "spec": {
            "containers": [
                { "name": "a", "ports": [{ "name": "http", "containerPort": 80 }, { "containerPort": 81 },
                    { "name": "dns", "protocol": "UDP", "containerPort": 53 }] },
                { "name": "b", "ports": [{ "name": "http", "containerPort": 8080 }] },
            ],
            "initContainers": [
                { "name": "c", "restartPolicy": "Always", "ports": [{ "name": "mesh", "containerPort": 15006 }] },
                { "name": "d", "ports": [{ "name": "once", "containerPort": 1 }] },
            ],
        } });
        let facts = PodFacts::of(&serde_json::from_value(pod).unwrap());
        let named = |name: &str, protocol| facts.ports.get(&(name.to_owned(), protocol)).copied();
        assert_eq!(named("http", Protocol::Tcp), Some(80));
        assert_eq!(named("dns", Protocol::Udp), Some(53));
        assert_eq!((named("dns", Protocol::Tcp), named("once", Protocol::Tcp)), (None, None));
        assert_eq!(named("mesh", Protocol::Tcp), Some(15006));
        assert!(facts.concerned);
    }

    #[test]
    fn policies_do_not_concern_a_pod_of_the_nodes_network_or_one_that_is_over() {
        let facts = |pod: serde_json::Value| PodFacts::of(&serde_json::from_value(pod).unwrap());
        assert!(
            !facts(json!({ "metadata": {}, "spec": { "hostNetwork": true, "containers": [] } })).concerned
        );
        assert!(!facts(json!({ "metadata": {}, "status": { "phase": "Failed" } })).concerned);
        assert!(facts(json!({ "metadata": {}, "status": { "phase": "Running" } })).concerned);
    }
}
