//! The controller of endpoints: it lists the pods that a Service selects, as `EndpointSlices` and as Endpoints.

mod legacy;
mod ports;
mod slices;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use crate::pods::{is_finished, is_ready};
use crate::shell::Plan;

/// Returns the calls that are due for all services.
pub(crate) fn plan(
    services: &[Arc<Service>],
    pods: &[Arc<Pod>],
    slices: &[Arc<EndpointSlice>],
    endpoints: &[Arc<Endpoints>],
) -> Plan {
    let mut plan = Plan::default();
    for service in services.iter().filter(|service| has_endpoints(service)) {
        let selected: Vec<_> = pods.iter().filter(|pod| selects(service, pod)).map(|pod| &**pod).collect();
        plan.extend(slices::calls(service, &selected, slices));
        plan.extend(legacy::calls(service, &selected, endpoints));
    }
    plan
}

/// Returns `true` if the service has a selector; endpoints of others are the user's own.
fn has_endpoints(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty());
    let external = spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    selector && !external
}

/// Returns `true` if the pod is an endpoint of the service, ready or not: it has an address and is not finished.
fn selects(service: &Service, pod: &Pod) -> bool {
    let mut selector = service.spec.iter().flat_map(|spec| spec.selector.iter().flatten());
    service.namespace() == pod.namespace()
        && selector.all(|(key, value)| pod.labels().get(key) == Some(value))
        && !is_finished(pod)
        && pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
}

/// Returns `true` if the pod accepts connections.
fn takes_connections(service: &Service, pod: &Pod) -> bool {
    let anyway = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false);
    anyway || is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.namespace(),
        name: Some(pod.name_any()),
        uid: pod.uid(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
