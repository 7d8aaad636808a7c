//! The mapping of a Service's ports to ports of a pod.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A port of a Service as one pod serves it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Port {
    /// The name; empty where the Service has one port without a name.
    pub(super) name: String,
    pub(super) number: i32,
    pub(super) protocol: String,
    pub(super) app_protocol: Option<String>,
}

/// The ports of the Service that the pod serves. A target port that is named may be another in each pod; a pod that has
/// none of that name does not serve it.
pub(super) fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let served = ports.filter_map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        let target = match &port.target_port {
            None | Some(IntOrString::Int(0)) => port.port,
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(name)) => container_port(pod, name, &protocol)?,
        };
        let name = port.name.clone().unwrap_or_default();
        Some(Port { name, number: target, protocol, app_protocol: port.app_protocol.clone() })
    });
    served.collect()
}

fn container_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let is_meant = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    };
    ports.find(|port| is_meant(port)).map(|port| port.container_port)
}
