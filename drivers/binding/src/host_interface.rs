//! Finds and deletes interfaces on the node, such as the node's ends of the veth pairs that connect pods.

use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use staffetta_driver::{DriverError, Reason};

use crate::error::failed;
use crate::messages::{self, GROUP};
use crate::netlink::{RouteSocket, is_missing};

/// Deletes the interface `name` of the node if these drivers created it; one of another program is left alone. A missing interface counts
/// as deleted.
pub(crate) fn remove(host: &RouteSocket, name: &str) -> Result<(), DriverError> {
    let step = "remove the interface on the node";
    match host.link(name).map_err(failed(step))? {
        Some(link) if is_ours(&link) => match host.change(messages::delete_link(link.header.index), 0) {
            Err(error) if !is_missing(&error) => Err(failed(step)(error).detail(name.to_owned())),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Makes the name `name` available for a new interface on the node: deletes a leftover interface of these drivers. Fails if another program
/// created the interface.
pub(crate) fn remove_leftover(host: &RouteSocket, name: &str) -> Result<(), DriverError> {
    remove(host, name)?;
    let step = "create the interface on the node";
    match host.link(name).map_err(failed(step))? {
        Some(_) => Err(DriverError::new(Reason::Refused, step)
            .detail(format!("another program has created {name}; remove it if it is a leftover"))),
        None => Ok(()),
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

/// Returns `true` if these drivers created the interface, which is then in the group [`GROUP`].
fn is_ours(link: &LinkMessage) -> bool {
    link.attributes.contains(&LinkAttribute::Group(GROUP))
}
