//! Announces the addresses of a pod, so that its neighbours replace what they know of an earlier owner: by gratuitous ARP (RFC 5227,
//! section 3) and by unsolicited neighbour advertisements (RFC 4861, section 7.2.6).
//!
//! Neither needs a `/proc/sys` that can be written, which a container seldom has. The kernel sends the ARP itself when the MAC address of
//! an interface is set, to the one that it has, if `arp_notify` is on; rtnetlink switches that on. For IPv6 there is no such attribute, so
//! the advertisements are sent from here, which needs the capability `NET_RAW`.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_route::link::{LinkAttribute, LinkMessage, State};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with, sockopt,
};
use staffetta_driver::{DriverError, MacAddress, Reason, VifAttachment};

use crate::error::failed;
use crate::messages;
use crate::namespace::{NetworkNamespaces, run_in_namespace};

/// The time limit for an interface that was brought up to become operational.
const OPERATIONAL_TIMEOUT: Duration = Duration::from_millis(250);
/// The interval between two checks whether the interface is operational.
const OPERATIONAL_INTERVAL: Duration = Duration::from_millis(2);
/// The multicast address of all IPv6 nodes of the link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The hop limit of a neighbour advertisement. Neighbours ignore an advertisement with any other value (RFC 4861, section 7.1.2).
const HOPS: u32 = 255;

/// Announces the addresses of the VIF to the neighbours in its network, from its interface in the pod. Does nothing if the pod has ended.
pub(crate) fn announce(attachment: &VifAttachment) -> Result<(), DriverError> {
    match run_in_namespace(&attachment.netns, |namespaces| announce_in(attachment, namespaces)) {
        Err(error) if error.reason() == Reason::NotFound => Ok(()),
        result => result,
    }
}

/// Announces the addresses of the VIF from within the namespace of the pod: IPv4 addresses by gratuitous ARP, which the kernel sends when
/// the interface gets its MAC address again, and each IPv6 address by an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
/// Does nothing if the pod has ended.
fn announce_in(attachment: &VifAttachment, namespaces: &NetworkNamespaces) -> Result<(), DriverError> {
    let vif = &attachment.vif;
    let Some(index) = until_operational(&attachment.interface, namespaces)? else { return Ok(()) };
    if vif.ips().any(|ip| ip.is_ipv4()) {
        let change =
            |request| namespaces.pod.change(request, 0).map_err(failed("announce the addresses by ARP"));
        change(messages::notify_by_arp(index))?;
        change(messages::set_address(index, vif.address))?;
    }
    for ip in vif.ips() {
        if let IpAddr::V6(ip) = ip {
            advertise(index, ip, vif.address).map_err(|error| unadvertised(ip, error))?;
        }
    }
    Ok(())
}

/// Waits until the interface can send, for at most [`OPERATIONAL_TIMEOUT`], because a bridge drops what an interface sends before. Returns
/// the index of the interface, even if it cannot send yet after that time; `None` if it does not exist any more.
#[expect(clippy::disallowed_methods, reason = "bindings run on threads for blocking work")]
fn until_operational(name: &str, namespaces: &NetworkNamespaces) -> Result<Option<u32>, DriverError> {
    let deadline = Instant::now() + OPERATIONAL_TIMEOUT;
    loop {
        let link = namespaces.pod.link(name).map_err(failed("find the interface in the pod"))?;
        match link {
            Some(link) if !is_operational(&link) && Instant::now() < deadline => {}
            link => return Ok(link.map(|link| link.header.index)),
        }
        thread::sleep(OPERATIONAL_INTERVAL);
    }
}

/// Returns `true` if the interface can send: its operational state is up or unknown.
fn is_operational(link: &LinkMessage) -> bool {
    let mut attributes = link.attributes.iter();
    attributes.any(|attribute| matches!(attribute, LinkAttribute::OperState(State::Up | State::Unknown)))
}

/// Sends a neighbour advertisement, which says that `ip` has the MAC address `mac`, through the interface with that index to all IPv6
/// nodes of its link.
fn advertise(index: u32, ip: Ipv6Addr, mac: MacAddress) -> io::Result<()> {
    let (flags, protocol) = (SocketFlags::CLOEXEC, Some(ipproto::ICMPV6));
    let socket = socket_with(AddressFamily::INET6, SocketType::RAW, flags, protocol)?;
    sockopt::set_ipv6_multicast_hops(&socket, HOPS)?;
    bind(&socket, &SocketAddrV6::new(ip, 0, 0, index))?;
    sendto(&socket, &advertisement(ip, mac), SendFlags::empty(), &SocketAddrV6::new(ALL_NODES, 0, 0, index))?;
    Ok(())
}

/// Encodes a neighbour advertisement (RFC 4861, section 4.4), which says that `ip` has the MAC address `mac`. It overrides the MAC address
/// that neighbours have cached for `ip`. The kernel computes its checksum (RFC 3542, section 3.1).
fn advertisement(ip: Ipv6Addr, mac: MacAddress) -> Vec<u8> {
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 1 << 5;
    const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
    let header = [NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    // The length of an option is counted in units of 8 bytes.
    [&header[..], &ip.octets(), &[TARGET_LINK_LAYER_ADDRESS, 1], &mac.0].concat()
}

/// Returns the error of an advertisement of `ip` that could not be sent.
fn unadvertised(ip: Ipv6Addr, error: io::Error) -> DriverError {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "; the daemon needs the capability NET_RAW",
        _ => "",
    };
    failed("announce an address to the neighbours")(error).detail(format!("{ip}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_names_the_address_and_overrides_the_earlier_owner() {
        let message = advertisement("fd99::b".parse().unwrap(), MacAddress([0xfa, 0x16, 0x3e, 0, 0, 0xb]));
        let mut expected = vec![136, 0, 0, 0, 0x20, 0, 0, 0, 0xfd, 0x99];
        expected.resize(23, 0);
        expected.extend([0xb, 2, 1, 0xfa, 0x16, 0x3e, 0, 0, 0xb]);
        assert_eq!(message, expected);
    }
}
