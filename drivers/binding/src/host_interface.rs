//! Finds and deletes interfaces on the node, such as the node's ends of the veth pairs that connect pods.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use staffetta_driver::{DriverError, MacAddress, Reason};

use crate::error::failed;
use crate::messages::{self, GROUP};
use crate::netlink::{RouteSocket, is_missing};

/// Returns the MAC address of the interfaces on the node that these drivers create for `owner`. It begins with `fe`, so that no bridge
/// takes it for its own, and contains 40 bits of a hash (FNV-1a). The kernel sets it when it creates an interface, so it is the mark of the
/// owner: the name holds only the start of the port's id.
pub(crate) fn mark(owner: &str) -> MacAddress {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let [_, _, mut address @ ..] = owner.bytes().fold(0xcbf2_9ce4_8422_2325, mix).to_be_bytes();
    address[0] = 0xfe;
    MacAddress(address)
}

/// Deletes the interface `name` of the node if these drivers created it, and for `owner` unless that is `None`. Any other one is left
/// alone. A missing interface counts as deleted.
pub(crate) fn remove(host: &RouteSocket, name: &str, owner: Option<&str>) -> Result<(), DriverError> {
    let step = "remove the interface on the node";
    let link = host.link(name).map_err(failed(step))?;
    let is_to_go = |link: &LinkMessage| is_ours(link) && owner.is_none_or(|owner| has_mac(link, mark(owner)));
    link.filter(is_to_go).map_or(Ok(()), |link| delete(host, &link))
}

/// Deletes the interface `name` of the node, unless these drivers created it for another owner than `owner`. A missing interface counts as
/// deleted.
pub(crate) fn remove_unless_of_another(
    host: &RouteSocket,
    name: &str,
    owner: &str,
) -> Result<(), DriverError> {
    let link = host.link(name).map_err(failed("remove the interface on the node"))?;
    let is_to_go = |link: &LinkMessage| !is_ours(link) || has_mac(link, mark(owner));
    link.filter(is_to_go).map_or(Ok(()), |link| delete(host, &link))
}

/// Deletes all interfaces of the node that these drivers created for `owner`.
pub(crate) fn remove_all(host: &RouteSocket, owner: &str) -> Result<(), DriverError> {
    let links = host.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    for answer in links.map_err(failed("find the interfaces on the node"))? {
        if let RouteNetlinkMessage::NewLink(link) = answer
            && is_ours(&link)
            && has_mac(&link, mark(owner))
        {
            delete(host, &link)?;
        }
    }
    Ok(())
}

fn delete(host: &RouteSocket, link: &LinkMessage) -> Result<(), DriverError> {
    match host.change(messages::delete_link(link.header.index), 0) {
        Err(error) if !is_missing(&error) => Err(failed("remove the interface on the node")(error)),
        _ => Ok(()),
    }
}

/// Makes the name `name` available for a new interface on the node, as [`remove`] does. Fails if another program created the interface,
/// or these drivers for another owner.
pub(crate) fn remove_leftover(
    host: &RouteSocket,
    name: &str,
    owner: Option<&str>,
) -> Result<(), DriverError> {
    remove(host, name, owner)?;
    let step = "create the interface on the node";
    match host.link(name).map_err(failed(step))? {
        None => Ok(()),
        Some(link) if is_ours(&link) => Err(DriverError::new(Reason::Conflict, step)
            .detail(format!("{name} connects another container of this node"))),
        Some(_) => Err(DriverError::new(Reason::Refused, step)
            .detail(format!("another program has created {name}; remove it if it is a leftover"))),
    }
}

/// Returns the index of the interface `name` of the node. Fails with [`Reason::Unavailable`] if there is none.
pub(crate) fn index(host: &RouteSocket, name: &str, step: &'static str) -> Result<u32, DriverError> {
    let link = host.link(name).map_err(failed(step))?;
    let missing = || {
        DriverError::new(Reason::Unavailable, step)
            .detail(format!("there is no interface {name} on the node"))
    };
    Ok(link.ok_or_else(missing)?.header.index)
}

/// Returns the MTU of an interface in bytes; `None` if the kernel did not report it.
pub(crate) fn mtu(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

/// Returns `true` if the interface `link` has that MAC address.
pub(crate) fn has_mac(link: &LinkMessage, mac: MacAddress) -> bool {
    link.attributes.contains(&LinkAttribute::Address(mac.0.to_vec()))
}

/// Returns `true` if these drivers created the interface, which is then in the group [`GROUP`].
fn is_ours(link: &LinkMessage) -> bool {
    link.attributes.contains(&LinkAttribute::Group(GROUP))
}
