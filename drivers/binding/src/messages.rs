//! The requests of rtnetlink that create and configure interfaces, as values.

use std::net::IpAddr;
use std::os::fd::RawFd;

use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InetDevConf, InfoBridge, InfoData, InfoKind,
    InfoMacVlan, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use staffetta_driver::MacAddress;

/// The link group of the interfaces on the node that these drivers created: the letters `Stf1`. The kernel sets it atomically with the
/// creation of an interface, so that there is never an interface of ours without it. `ip link show group 1400137265` lists them.
pub(crate) const GROUP: u32 = 0x5374_6631;

/// The properties of an interface in a pod that is to be created.
#[derive(Clone, Copy)]
pub(crate) struct PodInterfaceSpec<'a> {
    /// The name of the interface.
    pub(crate) name: &'a str,
    /// The MAC address of the interface.
    pub(crate) mac: MacAddress,
    /// The MTU of the interface in bytes; `None` leaves the choice to the kernel.
    pub(crate) mtu: Option<u32>,
    /// The file descriptor of the pod's network namespace.
    pub(crate) netns: RawFd,
}

impl PodInterfaceSpec<'_> {
    /// Returns the netlink attributes that give the interface its name, MAC address, network namespace and, if set, MTU.
    fn attributes(self) -> Vec<LinkAttribute> {
        let mut attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.0.to_vec()),
            LinkAttribute::NetNsFd(self.netns),
        ];
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes
    }
}

/// Returns the request that creates a veth pair: `host` on the node, up, with the MAC address `mark`, and in the bridge with the index
/// `bridge`, if there is one; and `pod` in the pod, down.
pub(crate) fn new_veth(
    host: &str,
    mark: MacAddress,
    bridge: Option<u32>,
    pod: PodInterfaceSpec<'_>,
) -> RouteNetlinkMessage {
    let mut peer = LinkMessage::default();
    peer.attributes = pod.attributes();
    let mut link = up();
    link.attributes = ours(host, mark, pod.mtu);
    link.attributes.extend(bridge.map(LinkAttribute::Controller));
    link.attributes.push(info(InfoKind::Veth, InfoData::Veth(InfoVeth::Peer(peer))));
    RouteNetlinkMessage::NewLink(link)
}

/// Returns the request that creates a Linux bridge on the node, down, with the MAC address `mark`, and without multicast snooping: it
/// passes on all multicast.
pub(crate) fn new_bridge(name: &str, mark: MacAddress) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = ours(name, mark, None);
    let options = vec![InfoBridge::MulticastSnooping(false)];
    link.attributes.push(info(InfoKind::Bridge, InfoData::Bridge(options)));
    RouteNetlinkMessage::NewLink(link)
}

/// Returns the request after which the interface with that index gets no IPv6 address when it is brought up, so that no pod reaches the
/// node by it.
pub(crate) fn without_address(index: u32) -> RouteNetlinkMessage {
    let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    RouteNetlinkMessage::SetLink(with(index, vec![LinkAttribute::AfSpecUnspec(vec![none])]))
}

/// Returns the request that creates a veth pair with both ends on the node: `port`, up and in the bridge with the index `bridge`; and
/// `peer`, down. Both have the MAC address `mark`.
pub(crate) fn new_host_pair(
    port: &str,
    bridge: u32,
    peer: &str,
    mark: MacAddress,
    mtu: Option<u32>,
) -> RouteNetlinkMessage {
    let (mut link, mut other) = (up(), LinkMessage::default());
    (link.attributes, other.attributes) = (ours(port, mark, mtu), ours(peer, mark, mtu));
    link.attributes.push(LinkAttribute::Controller(bridge));
    link.attributes.push(info(InfoKind::Veth, InfoData::Veth(InfoVeth::Peer(other))));
    RouteNetlinkMessage::NewLink(link)
}

/// Returns the request that creates a VLAN interface in a pod, on the interface of the node with the index `parent`.
pub(crate) fn new_vlan(parent: u32, vlan_id: u16, pod: PodInterfaceSpec<'_>) -> RouteNetlinkMessage {
    nested(parent, pod, info(InfoKind::Vlan, InfoData::Vlan(vec![InfoVlan::Id(vlan_id)])))
}

/// Returns the request that creates a macvlan interface in a pod, on the interface of the node with the index `parent`, in the mode
/// `bridge`: the pods of the node reach one another.
pub(crate) fn new_macvlan(parent: u32, pod: PodInterfaceSpec<'_>) -> RouteNetlinkMessage {
    let mode = InfoMacVlan::Mode(MacVlanMode::Bridge);
    nested(parent, pod, info(InfoKind::MacVlan, InfoData::MacVlan(vec![mode])))
}

/// Returns the request that creates an interface in a pod on the interface of the node with the index `parent`; `info` is its kind.
fn nested(parent: u32, pod: PodInterfaceSpec<'_>, info: LinkAttribute) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = pod.attributes();
    link.attributes.extend([LinkAttribute::Link(parent), info]);
    RouteNetlinkMessage::NewLink(link)
}

/// Returns the attributes of an interface that these drivers create on the node: name, [`GROUP`], the mark of its owner as its MAC address,
/// and MTU. `None` leaves the choice of the MTU to the kernel.
fn ours(name: &str, mark: MacAddress, mtu: Option<u32>) -> Vec<LinkAttribute> {
    let name = LinkAttribute::IfName(name.to_owned());
    let named = [name, LinkAttribute::Group(GROUP), LinkAttribute::Address(mark.0.to_vec())];
    named.into_iter().chain(mtu.map(LinkAttribute::Mtu)).collect()
}

/// Returns the attribute with the kind of an interface and the properties of that kind.
fn info(kind: InfoKind, data: InfoData) -> LinkAttribute {
    LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)])
}

/// Returns a netlink message that brings an interface up (flag `UP`). The caller adds the index or the attributes.
fn up() -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

/// Returns the request that brings the interface with that index up.
pub(crate) fn set_up(index: u32) -> RouteNetlinkMessage {
    let mut link = up();
    link.header.index = index;
    RouteNetlinkMessage::SetLink(link)
}

/// Returns the request that changes the MAC address and the MTU (`None` keeps each) of the interface with that index, and brings it up.
pub(crate) fn set_link(index: u32, mac: Option<MacAddress>, mtu: Option<u32>) -> RouteNetlinkMessage {
    let mut link = up();
    link.header.index = index;
    link.attributes = mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())).into_iter().collect();
    link.attributes.extend(mtu.map(LinkAttribute::Mtu));
    RouteNetlinkMessage::SetLink(link)
}

/// Returns the request that sets the MAC address of the interface with that index.
pub(crate) fn set_address(index: u32, mac: MacAddress) -> RouteNetlinkMessage {
    RouteNetlinkMessage::SetLink(with(index, vec![LinkAttribute::Address(mac.0.to_vec())]))
}

/// Returns the request after which the kernel announces the addresses of the interface with that index by ARP, whenever its MAC address is
/// set or it is brought up (`arp_notify`).
pub(crate) fn notify_by_arp(index: u32) -> RouteNetlinkMessage {
    let mut options = InetDevConf::default();
    options.arp_notify = 1;
    let inet = AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(options)]);
    RouteNetlinkMessage::SetLink(with(index, vec![LinkAttribute::AfSpecUnspec(vec![inet])]))
}

/// Returns the request that deletes the interface with that index. If it is an end of a veth pair, the kernel deletes the other end too.
pub(crate) fn delete_link(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelLink(with(index, Vec::new()))
}

/// Returns the body of a netlink request about the interface with that index: the index and these attributes of the interface.
fn with(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = attributes;
    link
}

/// Returns the request that adds an address to the interface with that index. The kernel does not probe for duplicates (RFC 4862), because
/// the port guarantees that no other interface has the address.
pub(crate) fn new_address(index: u32, address: IpNet) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.header.family = family(address.addr());
    message.attributes =
        vec![AddressAttribute::Address(address.addr()), AddressAttribute::Local(address.addr())];
    match address {
        IpNet::V4(net) if net.prefix_len() < 31 => {
            message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
        }
        IpNet::V4(_) => {}
        IpNet::V6(_) => {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
    }
    RouteNetlinkMessage::NewAddress(message)
}

/// Returns the request that adds a route to `destination` through `gateway`. With `onlink`, the gateway need not lie in a network of the
/// interface.
pub(crate) fn new_route(
    index: u32,
    destination: IpNet,
    gateway: IpAddr,
    onlink: bool,
) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if onlink {
        message.header.flags = RouteFlags::Onlink;
    }
    if destination.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination.network())));
    }
    message
        .attributes
        .extend([RouteAttribute::Gateway(RouteAddress::from(gateway)), RouteAttribute::Oif(index)]);
    RouteNetlinkMessage::NewRoute(message)
}

/// Returns the address family of `address`.
pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::encode;

    /// Returns the attribute of rtnetlink with this number and value.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn contains(message: &[u8], part: &[u8]) -> bool {
        message.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn a_vlan_interface_is_requested_with_its_parent_its_id_and_the_namespace_of_the_pod() {
        let mac = MacAddress([0xfa, 0x16, 0x3e, 0, 0, 1]);
        let pod = PodInterfaceSpec { name: "eth0", mac, mtu: Some(1450), netns: 7 };
        let message = encode(new_vlan(3, 4094, pod), 0x600);
        // RTM_NEWLINK, with NLM_F_REQUEST, NLM_F_CREATE and NLM_F_EXCL.
        assert_eq!(message[4..8], [16, 0, 1, 6]);
        for (kind, value) in [
            (3, &b"eth0\0"[..]),
            (1, &mac.0),
            (4, &1450_u32.to_ne_bytes()),
            (5, &3_u32.to_ne_bytes()),
            (28, &7_u32.to_ne_bytes()),
        ] {
            assert!(contains(&message, &attribute(kind, value)), "IFLA {kind}");
        }
        // IFLA_INFO_DATA with IFLA_VLAN_ID.
        assert!(contains(&message, &attribute(1, &4094_u16.to_ne_bytes())));
        assert!(contains(&message, b"vlan"));
    }

    #[test]
    fn announcements_by_arp_are_an_option_of_the_interface() {
        let message = encode(notify_by_arp(3), 0);
        assert_eq!(message[4..6], [19, 0], "RTM_SETLINK");
        // IPV4_DEVCONF_ARP_NOTIFY in IFLA_INET_CONF, which contains attributes.
        let option = attribute(1 | 1 << 15, &attribute(22, &1_u32.to_ne_bytes()));
        assert!(contains(&message, &option), "{message:?}");
    }
}
