//! The `EndpointSlices` of a Service: one for each address family and set of ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::ports::{Port, ports};
use super::{reference, takes_connections};
use crate::call::Call;
use crate::names::suffix;
use crate::owners::{controlled_by, dependents};
use crate::pods::{is_ready, node};

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "staffetta-cluster");

/// The maximum number of endpoints of a slice.
const SIZE: usize = 100;

pub(super) fn calls(service: &Service, pods: &[&Pod], slices: &[Arc<EndpointSlice>]) -> Vec<Call> {
    let present = dependents(service, slices);
    let wanted = wanted(service, pods);
    let surplus = present.iter().filter(|slice| !wanted.contains_key(&slice.name_any()));
    let surplus = surplus.map(|slice| Call::delete(&**slice, None));
    let due = wanted.iter().filter_map(|(name, wanted)| {
        let Some(slice) = present.iter().find(|slice| slice.name_any() == *name) else {
            return Some(Call::create(wanted));
        };
        let same = slice.endpoints == wanted.endpoints
            && slice.ports.as_deref().unwrap_or_default() == wanted.ports.as_deref().unwrap_or_default()
            && slice.metadata.labels == wanted.metadata.labels;
        (!same).then(|| Call::replace(&**slice, wanted))
    });
    due.chain(surplus).collect()
}

/// The slices as they should be, by name.
fn wanted(service: &Service, pods: &[&Pod]) -> BTreeMap<String, EndpointSlice> {
    let mut groups: BTreeMap<(&'static str, Vec<Port>), Vec<Endpoint>> = BTreeMap::new();
    for family in families(service) {
        if pods.is_empty() {
            groups.insert((family, Vec::new()), Vec::new());
        }
        for pod in pods {
            let addresses = addresses(pod).filter(|address| family_of(address) == family);
            if let Some(address) = addresses.min() {
                groups
                    .entry((family, ports(service, pod)))
                    .or_default()
                    .push(endpoint(service, pod, address));
            }
        }
    }
    let mut slices = BTreeMap::new();
    for ((family, ports), mut endpoints) in groups {
        endpoints.sort_by(|one, other| one.addresses.cmp(&other.addresses));
        let mut chunks: Vec<_> = endpoints.chunks(SIZE).map(<[_]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        for (number, endpoints) in chunks.into_iter().enumerate() {
            let name = format!("{}-{}", service.name_any(), suffix((family, &ports, number), 5));
            slices.insert(name.clone(), slice(service, name, family, &ports, endpoints));
        }
    }
    slices
}

fn slice(
    service: &Service,
    name: String,
    family: &str,
    ports: &[Port],
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let mut labels = service.labels().clone();
    labels.insert(SERVICE.into(), service.name_any());
    labels.insert(MANAGED_BY.0.into(), MANAGED_BY.1.into());
    let port = |port: &Port| EndpointPort {
        name: Some(port.name.clone()),
        port: Some(port.number),
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: service.namespace(),
            labels: Some(labels),
            owner_references: Some(controlled_by(service)),
            ..ObjectMeta::default()
        },
        address_type: family.into(),
        ports: Some(ports.iter().map(port).collect()),
        endpoints,
    }
}

fn endpoint(service: &Service, pod: &Pod, address: IpAddr) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(takes_connections(service, pod)),
            serving: Some(is_ready(pod)),
            terminating: Some(pod.metadata.deletion_timestamp.is_some()),
        }),
        node_name: node(pod).map(str::to_owned),
        target_ref: Some(reference(pod)),
        ..Endpoint::default()
    }
}

/// The families of addresses that the Service has; IPv4 if it does not say.
fn families(service: &Service) -> Vec<&'static str> {
    let named = service.spec.iter().flat_map(|spec| spec.ip_families.iter().flatten());
    let known = |family: &String| if family == "IPv6" { "IPv6" } else { "IPv4" };
    let named: Vec<_> = named.map(known).collect();
    if named.is_empty() { vec!["IPv4"] } else { named }
}

fn family_of(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> + '_ {
    let status = pod.status.iter();
    let several = status.clone().flat_map(|status| status.pod_ips.iter().flatten()).map(|ip| &ip.ip);
    several.chain(status.filter_map(|status| status.pod_ip.as_ref())).filter_map(|ip| ip.parse().ok())
}
