//! The Endpoints of a Service, the API before `discovery.k8s.io/v1`. They contain only the first address of each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::ports::{Port, ports};
use super::{reference, takes_connections};
use crate::call::Call;
use crate::owners::controlled_by;
use crate::pods::node;

pub(super) fn calls(service: &Service, pods: &[&Pod], endpoints: &[Arc<Endpoints>]) -> Option<Call> {
    let wanted = wanted(service, pods);
    let name = |endpoints: &&Arc<Endpoints>| {
        endpoints.namespace() == service.namespace() && endpoints.name_any() == service.name_any()
    };
    match endpoints.iter().find(name) {
        None => Some(Call::create(&wanted)),
        Some(present) => {
            let same = present.subsets.as_deref().unwrap_or_default()
                == wanted.subsets.as_deref().unwrap_or_default();
            (!same).then(|| Call::replace(&**present, &keep_metadata(present, wanted)))
        }
    }
}

/// Annotations of others stay.
fn keep_metadata(present: &Endpoints, wanted: Endpoints) -> Endpoints {
    Endpoints { metadata: present.metadata.clone(), ..wanted }
}

fn wanted(service: &Service, pods: &[&Pod]) -> Endpoints {
    let mut groups: BTreeMap<Vec<Port>, (Vec<EndpointAddress>, Vec<EndpointAddress>)> = BTreeMap::new();
    for pod in pods {
        let (ready, unready) = groups.entry(ports(service, pod)).or_default();
        if takes_connections(service, pod) { ready } else { unready }.push(address(pod));
    }
    let subsets = groups.into_iter().map(|(ports, (ready, unready))| EndpointSubset {
        addresses: sorted(ready),
        not_ready_addresses: sorted(unready),
        ports: Some(ports.into_iter().map(port).collect()),
    });
    Endpoints {
        metadata: ObjectMeta {
            name: Some(service.name_any()),
            namespace: service.namespace(),
            labels: Some(service.labels().clone()),
            owner_references: Some(controlled_by(service)),
            ..ObjectMeta::default()
        },
        subsets: Some(subsets.collect()),
    }
}

fn address(pod: &Pod) -> EndpointAddress {
    EndpointAddress {
        ip: pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default(),
        node_name: node(pod).map(str::to_owned),
        target_ref: Some(reference(pod)),
        ..EndpointAddress::default()
    }
}

fn port(port: Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name).filter(|name| !name.is_empty()),
        port: port.number,
        protocol: Some(port.protocol),
        app_protocol: port.app_protocol,
    }
}

fn sorted(mut addresses: Vec<EndpointAddress>) -> Option<Vec<EndpointAddress>> {
    addresses.sort_by(|one, other| one.ip.cmp(&other.ip));
    Some(addresses).filter(|addresses| !addresses.is_empty())
}
