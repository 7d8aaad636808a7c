//! The annotations of pods and services, parsed independently of the product, which the demo checks.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde_json::Value;

/// The annotation `openstack.org/kuryr-vif` of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VifState {
    pub(crate) id: String,
    pub(crate) active: bool,
    /// Each address with the subnet in which it is said to lie.
    pub(crate) addresses: Vec<(IpAddr, IpNet)>,
}

/// The annotation `openstack.org/kuryr-lbaas-state` of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LbaasState {
    pub(crate) vip: IpAddr,
    pub(crate) listeners: usize,
    /// The address and port of each member.
    pub(crate) members: BTreeSet<(IpAddr, u16)>,
    pub(crate) public_ip: Option<IpAddr>,
}

/// The VIF of a pod; none where there is no annotation or nothing that can be read.
pub(crate) fn vif(pod: &Pod) -> Option<VifState> {
    let state = parse(pod, "openstack.org/kuryr-vif")?;
    let vif = content(&content(&state)["default_vif"]);
    let subnets = objects(&content(&vif["network"])["subnets"]);
    let addresses = subnets.flat_map(|subnet| {
        let cidr: Option<IpNet> = text(&subnet["cidr"]);
        objects(&subnet["ips"]).filter_map(move |ip| Some((text(&ip["address"])?, cidr?)))
    });
    Some(VifState { id: text(&vif["id"])?, active: vif["active"] == true, addresses: addresses.collect() })
}

/// The address in the annotation `vpc.amazonaws.com/PrivateIPv4Address` of a pod; none where there is no annotation or nothing that can be
/// read.
pub(crate) fn interface_address(pod: &Pod) -> Option<Ipv4Addr> {
    let network: Ipv4Net = pod.annotations().get("vpc.amazonaws.com/PrivateIPv4Address")?.parse().ok()?;
    Some(network.addr())
}

/// The ports that the annotation `openstack.org/kuryr-lbaas-spec` of a service names.
pub(crate) fn lbaas_spec(service: &Service) -> Option<BTreeSet<u64>> {
    let spec = parse(service, "openstack.org/kuryr-lbaas-spec")?;
    let ports = content(&spec)["ports"].as_array()?;
    Some(ports.iter().filter_map(|port| content(port)["port"].as_u64()).collect())
}

/// The load balancer of a service; none where there is no annotation or nothing that can be read.
pub(crate) fn lbaas_state(service: &Service) -> Option<LbaasState> {
    let state = parse(service, "openstack.org/kuryr-lbaas-state")?;
    let state = content(&state);
    let member = |member: &Value| {
        let member = content(member);
        Some((text(&member["ip"])?, u16::try_from(member["port"].as_u64()?).ok()?))
    };
    Some(LbaasState {
        vip: text(&content(&state["loadbalancer"])["ip"])?,
        listeners: state["listeners"].as_array()?.len(),
        members: state["members"].as_array()?.iter().filter_map(member).collect(),
        public_ip: text(&content(&state["service_pub_ip_info"])["ip_addr"]),
    })
}

fn parse(object: &impl ResourceExt, annotation: &str) -> Option<Value> {
    serde_json::from_str(object.annotations().get(annotation)?).ok()
}

/// The content of a versioned object, out of its envelope.
fn content(object: &Value) -> &Value {
    &object["versioned_object.data"]
}

fn objects(list: &Value) -> impl Iterator<Item = &Value> {
    content(list)["objects"].as_array().into_iter().flatten().map(content)
}

fn text<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}
