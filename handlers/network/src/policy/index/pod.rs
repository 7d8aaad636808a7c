//! The fields of a pod that policies depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use staffetta_driver::{Owner, PodLifecycle, Protocol};

use super::selector::Labels;

/// The name and the protocol of a named port of a container.
pub(super) type PortName = (String, Protocol);

/// The numbers of named ports, by name and protocol.
pub(super) type PortNumbers = BTreeMap<PortName, u16>;

/// The fields of a pod that network policies depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodFields {
    /// The namespace, name and UID of the pod.
    pub(super) owner: Owner,
    /// The labels of the pod.
    pub(super) labels: Labels,
    /// The numbers of the pod's named ports. If two ports have the same name and protocol, the
    /// first one counts.
    pub(super) ports: PortNumbers,
    /// `true` if policies apply: the pod has a network of its own and has not finished.
    pub(super) is_restricted: bool,
}

impl PodFields {
    /// Extracts the fields from a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let mut ports = PortNumbers::new();
        // Sidecars are init containers that are always restarted.
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let sidecars = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = spec.map(|spec| &spec.containers).into_iter().flatten().chain(sidecars);
        for (name, number) in containers.flat_map(named) {
            ports.entry(name).or_insert(number);
        }
        Self {
            owner: Owner::of(&pod.metadata),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            ports,
            is_restricted: PodLifecycle::of(pod).has_network(),
        }
    }

    /// Returns the numbers of the pod's ports with these names. Ports that the pod does not have
    /// are left out.
    pub(super) fn numbers<'p>(&self, names: impl IntoIterator<Item = &'p PortName>) -> PortNumbers {
        names.into_iter().filter_map(|name| Some((name.clone(), *self.ports.get(name)?))).collect()
    }
}

/// Returns the names and numbers of a container's named ports.
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
    fn the_named_ports_of_a_pod_are_those_of_its_containers_and_sidecars() {
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
        let facts = PodFields::of(&serde_json::from_value(pod).unwrap());
        let named = |name: &str, protocol| facts.ports.get(&(name.to_owned(), protocol)).copied();
        assert_eq!(named("http", Protocol::Tcp), Some(80));
        assert_eq!(named("dns", Protocol::Udp), Some(53));
        assert_eq!((named("dns", Protocol::Tcp), named("once", Protocol::Tcp)), (None, None));
        assert_eq!(named("mesh", Protocol::Tcp), Some(15006));
        assert!(facts.is_restricted);
    }

    #[test]
    fn policies_do_not_apply_to_pods_of_the_host_network_or_finished_pods() {
        let facts = |pod: serde_json::Value| PodFields::of(&serde_json::from_value(pod).unwrap());
        assert!(
            !facts(json!({ "metadata": {}, "spec": { "hostNetwork": true, "containers": [] } }))
                .is_restricted
        );
        assert!(!facts(json!({ "metadata": {}, "status": { "phase": "Failed" } })).is_restricted);
        assert!(facts(json!({ "metadata": {}, "status": { "phase": "Running" } })).is_restricted);
    }
}
