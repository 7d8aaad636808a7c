//! Checks services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use super::{going, name};
use crate::annotations::{LbaasState, lbaas_spec, lbaas_state};

/// Returns the reason why the service is not complete. A service without selector or cluster IP needs no load
/// balancer.
pub(super) fn reason(service: &Service, slices: &[EndpointSlice]) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let headless = matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"));
    let plain = headless || spec.selector.as_ref().is_none_or(BTreeMap::is_empty);
    let fault = || if plain { None } else { fault(service, spec, slices) };
    going(service).or_else(fault).map(|what| format!("the service {} {what}", name(service)))
}

/// The public addresses in its status.
pub(super) fn public_ips(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

fn fault(service: &Service, spec: &ServiceSpec, slices: &[EndpointSlice]) -> Option<String> {
    let ports = spec.ports.iter().flatten().filter_map(|port| u64::try_from(port.port).ok());
    let ports: BTreeSet<_> = ports.collect();
    match lbaas_spec(service) {
        None => return Some("has no description of its load balancer".into()),
        Some(said) if said != ports => {
            return Some(format!(
                "has the ports {ports:?}, but {said:?} in the description of its load balancer"
            ));
        }
        Some(_) => {}
    }
    let Some(state) = lbaas_state(service) else { return Some("has no load balancer".into()) };
    if spec.cluster_ip != Some(state.vip.to_string()) {
        return Some(format!("has a load balancer at {} instead of its own address", state.vip));
    }
    if state.listeners != ports.len() {
        return Some(format!("has {} ports and {} listeners", ports.len(), state.listeners));
    }
    let endpoints = ready_endpoints(service, slices);
    if state.members != endpoints {
        let (ready, members) = (endpoints.len(), state.members.len());
        return Some(format!("has {ready} ready endpoints and {members} members, or not the same ones"));
    }
    if spec.type_.as_deref() == Some("LoadBalancer") { public_fault(service, &state) } else { None }
}

fn public_fault(service: &Service, state: &LbaasState) -> Option<String> {
    let said = public_ips(service);
    match state.public_ip {
        None => Some("has no public address".into()),
        Some(public_ip) if said != [public_ip] => {
            Some(format!("has the public address {public_ip} and says {said:?} in its status"))
        }
        Some(_) => None,
    }
}

/// Each address and port at which a ready pod serves the service.
fn ready_endpoints(service: &Service, slices: &[EndpointSlice]) -> BTreeSet<(IpAddr, u16)> {
    let of_service = |slice: &&EndpointSlice| {
        slice.namespace() == service.namespace()
            && slice.labels().get("kubernetes.io/service-name") == service.metadata.name.as_ref()
    };
    let mut found = BTreeSet::new();
    for slice in slices.iter().filter(of_service) {
        let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
        for endpoint in &slice.endpoints {
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
            let addresses =
                endpoint.addresses.first().filter(|_| ready).and_then(|address| address.parse().ok());
            found.extend(
                addresses.into_iter().flat_map(|ip: IpAddr| ports.clone().map(move |port| (ip, port))),
            );
        }
    }
    found
}
