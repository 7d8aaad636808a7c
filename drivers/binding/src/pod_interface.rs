//! The interface of a VIF in a pod: its checks, addresses and routes.

use std::net::IpAddr;
use std::{fs, io};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use staffetta_driver::{DriverError, Reason, Vif, VifAttachment};

use crate::error::failed;
use crate::host_interface::{self, has_mac};
use crate::messages::{self, PodInterfaceSpec};
use crate::namespace::{NetworkNamespaces, run_in_namespace};
use crate::netlink::{RouteSocket, exists};

/// The smallest MTU of a network with IPv4 (RFC 791), in bytes.
const MIN_MTU_V4: u32 = 68;
/// The smallest MTU of a network with IPv6 (RFC 8200), in bytes.
const MIN_MTU_V6: u32 = 1280;

/// Returns an error unless the interface name, the port id, the MAC address and the MTU of the VIF are valid.
pub(crate) fn validate(attachment: &VifAttachment) -> Result<(), DriverError> {
    let refused = |detail: String| Err(DriverError::new(Reason::Refused, "bind the VIF").detail(detail));
    let name = &attachment.interface;
    let is_name = (1..=15).contains(&name.len())
        && !matches!(name.as_str(), "." | ".." | "lo" | "all" | "default")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'));
    if !is_name {
        return refused(format!("`{name}` is not a name of an interface"));
    }
    let id = attachment.vif.id.as_str();
    let is_id = id.len() >= 11 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_id {
        return refused(format!("`{id}` is not the id of a port: at least 11 letters, digits and hyphens"));
    }
    if attachment.vif.address.0[0] & 1 == 1 {
        return refused(format!("{} is the address of a group", attachment.vif.address));
    }
    let min = if attachment.vif.ips().any(|ip| ip.is_ipv6()) { MIN_MTU_V6 } else { MIN_MTU_V4 };
    match attachment.vif.network.mtu {
        Some(mtu) if mtu < min => {
            refused(format!("the MTU of the network is {mtu}; its addresses need at least {min}"))
        }
        _ => Ok(()),
    }
}

/// Returns an error if an address of the VIF is one of the node itself.
pub(crate) fn check_addresses(
    attachment: &VifAttachment,
    namespaces: &NetworkNamespaces,
) -> Result<(), DriverError> {
    match attachment.vif.ips().find(|ip| namespaces.host.is_local(*ip)) {
        None => Ok(()),
        Some(ip) => Err(DriverError::new(Reason::Refused, "bind the VIF")
            .detail(format!("{ip} is an address of the node itself"))),
    }
}

/// Returns the properties of the VIF's interface in the pod, for the request that creates it.
pub(crate) fn pod_interface_spec<'a>(
    attachment: &'a VifAttachment,
    namespaces: &NetworkNamespaces,
) -> PodInterfaceSpec<'a> {
    PodInterfaceSpec {
        name: &attachment.interface,
        mac: attachment.vif.address,
        mtu: attachment.vif.network.mtu,
        netns: namespaces.netns(),
    }
}

/// Adds the addresses of the VIF to its interface in the pod, brings it up, and adds the routes. A route that exists already is kept.
pub(crate) fn configure(
    attachment: &VifAttachment,
    namespaces: &NetworkNamespaces,
) -> Result<(), DriverError> {
    let step = "find the interface in the pod";
    let link = namespaces.pod.link(&attachment.interface).map_err(failed(step))?;
    let index = link.ok_or_else(|| DriverError::new(Reason::Unavailable, step))?.header.index;
    let addresses = addresses(&attachment.vif);
    if addresses.iter().any(|address| matches!(address, IpNet::V6(_))) {
        enable_v6(&attachment.interface);
    }
    for address in addresses {
        namespaces
            .pod
            .change(messages::new_address(index, address), NLM_F_CREATE | NLM_F_REPLACE)
            .map_err(|error| unadded(address, error))?;
    }
    namespaces.pod.change(messages::set_up(index), 0).map_err(failed("set the interface up"))?;
    for (destination, gateway, onlink) in routes(attachment) {
        let route = messages::new_route(index, destination, gateway, onlink);
        match namespaces.pod.change(route, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if !exists(&error) => {
                return Err(failed("add a route")(error).detail(format!("{destination} via {gateway}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Enables IPv6 on an interface in the pod, since the node may disable it for new ones. Has no effect where `/proc/sys` is read-only.
fn enable_v6(interface: &str) {
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "0");
}

/// Returns the error of an address that could not be added to the interface in the pod.
fn unadded(address: IpNet, error: io::Error) -> DriverError {
    let remedy = match (address, error.kind()) {
        (IpNet::V6(_), io::ErrorKind::PermissionDenied) => {
            "; IPv6 is disabled in the pod: set net.ipv6.conf.default.disable_ipv6 of the node to 0"
        }
        _ => "",
    };
    failed("add an address")(error).detail(format!("{address}{remedy}"))
}

/// Returns the addresses of a VIF with the prefix lengths of their subnets.
pub(crate) fn addresses(vif: &Vif) -> Vec<IpNet> {
    let of_subnet = |subnet: &staffetta_driver::SubnetAddresses| {
        let prefix = subnet.cidr.prefix_len();
        subnet.ips.iter().filter_map(move |ip| IpNet::new(*ip, prefix).ok()).collect::<Vec<_>>()
    };
    vif.subnets.iter().flat_map(of_subnet).collect()
}

/// Returns the routes of a VIF: destination, gateway, and `true` if the gateway is outside of the subnet. The routes of a subnet come
/// before its default route, because one of them may lead to the gateway.
fn routes(attachment: &VifAttachment) -> Vec<(IpNet, IpAddr, bool)> {
    let mut routes = Vec::new();
    for subnet in &attachment.vif.subnets {
        let is_outside = |gateway: &IpAddr| !subnet.cidr.contains(gateway);
        let fits = |gateway: &IpAddr| gateway.is_ipv4() == subnet.cidr.addr().is_ipv4();
        routes.extend(
            subnet
                .routes
                .iter()
                .filter(|route| fits(&route.gateway) && fits(&route.cidr.addr()))
                .map(|route| (route.cidr, route.gateway, is_outside(&route.gateway))),
        );
        if let Some(gateway) = subnet.gateway.filter(|gateway| attachment.default_route && fits(gateway)) {
            let everything =
                if gateway.is_ipv4() { IpNet::V4(Ipv4Net::default()) } else { IpNet::V6(Ipv6Net::default()) };
            routes.push((everything, gateway, is_outside(&gateway)));
        }
    }
    routes
}

/// Removes the interface of the VIF in the pod. An interface with another MAC address is not that of the VIF, and stays.
pub(crate) fn remove(attachment: &VifAttachment, namespaces: &NetworkNamespaces) -> Result<(), DriverError> {
    let step = "remove the interface in the pod";
    match namespaces.pod.link(&attachment.interface).map_err(failed(step))? {
        Some(link) if has_mac(&link, attachment.vif.address) => {
            namespaces.pod.change(messages::delete_link(link.header.index), 0).map_err(failed(step))
        }
        _ => Ok(()),
    }
}

/// Enters the network namespace of the pod, and removes the interface of the VIF. A namespace that does not exist, or is that of the node,
/// counts as one without the interface.
pub(crate) fn remove_from(attachment: &VifAttachment) -> Result<(), DriverError> {
    match run_in_namespace(&attachment.netns, |namespaces| remove(attachment, namespaces)) {
        Err(error) if matches!(error.reason(), Reason::NotFound | Reason::Refused) => Ok(()),
        result => result,
    }
}

/// Returns an error unless the interface in the pod is up and has the MAC address, the MTU, the addresses and the routes of the VIF. A
/// route to the same destination through another interface of the pod counts, because [`configure`] keeps it.
pub(crate) fn check(attachment: &VifAttachment, namespaces: &NetworkNamespaces) -> Result<(), DriverError> {
    let step = "check the interface in the pod";
    let (name, vif) = (&attachment.interface, &attachment.vif);
    let wrong = |detail: String| Err(DriverError::new(Reason::NotFound, step).detail(detail));
    let Some(link) = namespaces.pod.link(name).map_err(failed(step))? else {
        return wrong(format!("there is no interface {name}"));
    };
    if !has_mac(&link, vif.address) {
        return wrong(format!("{name} has not the MAC address {}", vif.address));
    }
    if !link.header.flags.contains(LinkFlags::Up) {
        return wrong(format!("{name} is down"));
    }
    if let (Some(mtu), Some(found)) = (vif.network.mtu, host_interface::mtu(&link))
        && mtu != found
    {
        return wrong(format!("the MTU of {name} is {found}, and that of the network {mtu}"));
    }
    let present = addresses_of(&namespaces.pod, link.header.index).map_err(failed(step))?;
    if let Some(ip) = vif.ips().find(|ip| !present.contains(ip)) {
        return wrong(format!("{name} has not the address {ip}"));
    }
    let present =
        namespaces.pod.dump(RouteNetlinkMessage::GetRoute(RouteMessage::default())).map_err(failed(step))?;
    // Of two routes to one destination, either may have been there first.
    let wanted = routes(attachment);
    let is_there = |destination, gateway| {
        present.iter().any(|route| is_route(route, destination, gateway, link.header.index))
    };
    let is_missing = |(destination, ..): &&(IpNet, IpAddr, bool)| {
        !wanted.iter().any(|(other, gateway, _)| other == destination && is_there(*other, *gateway))
    };
    match wanted.iter().find(is_missing) {
        Some((destination, gateway, _)) => wrong(format!("there is no route to {destination} via {gateway}")),
        None => Ok(()),
    }
}

/// Returns the addresses of the interface with that index, in the namespace of `socket`.
pub(crate) fn addresses_of(socket: &RouteSocket, index: u32) -> io::Result<Vec<IpAddr>> {
    let answers = socket.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let attributes = answers.into_iter().flat_map(|answer| match answer {
        RouteNetlinkMessage::NewAddress(message) if message.header.index == index => message.attributes,
        _ => Vec::new(),
    });
    let address = |attribute| match attribute {
        AddressAttribute::Address(ip) => Some(ip),
        _ => None,
    };
    Ok(attributes.filter_map(address).collect())
}

/// Returns `true` if `answer` is a route of the main table to `destination`: via `gateway` if it leads through the interface with that
/// index, and in any way if it leads through another one.
fn is_route(answer: &RouteNetlinkMessage, destination: IpNet, gateway: IpAddr, index: u32) -> bool {
    let RouteNetlinkMessage::NewRoute(route) = answer else { return false };
    let has = |attribute| route.attributes.contains(&attribute);
    let is_default = destination.prefix_len() == 0;
    route.header.table == RouteHeader::RT_TABLE_MAIN
        && route.header.address_family == messages::family(gateway)
        && route.header.destination_prefix_length == destination.prefix_len()
        && (is_default || has(RouteAttribute::Destination(destination.network().into())))
        && (has(RouteAttribute::Gateway(gateway.into())) || !has(RouteAttribute::Oif(index)))
}
