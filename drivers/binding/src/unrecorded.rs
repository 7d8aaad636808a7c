//! Removes what a container has, of which the daemon has no record: because its state was lost, or because Kuryr's daemon bound the pod.

use std::path::Path;

use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use staffetta_driver::{DriverError, Reason};

use crate::error::failed;
use crate::namespace::run_in_namespace;
use crate::netlink::RouteSocket;
use crate::ovsdb::Ovsdb;
use crate::{host_interface, messages};

/// Removes the veth pair of the interface `interface` in the network namespace `netns`, with its port of Open vSwitch, and all
/// interfaces on the node and ports of Open vSwitch that have the mark of `owner`.
pub(crate) fn unplug(ovsdb: &Ovsdb, owner: &str, netns: &Path, interface: &str) -> Result<(), DriverError> {
    let removed = remove_pair(netns, interface)?;
    let host = RouteSocket::open().map_err(failed("remove the interfaces on the node"))?;
    host_interface::remove_all(&host, owner)?;
    if !ovsdb.is_present() {
        return Ok(());
    }
    if let Some(name) = removed
        && let Some(row) = ovsdb.interface(&name)?
        && !row.internal
    {
        ovsdb.remove(&row)?;
    }
    ovsdb.names_of(owner)?.iter().try_for_each(|name| ovsdb.remove_own(name, owner))
}

/// Removes the interface `interface` in the network namespace `netns` if it is an end of a veth pair whose other end is called like those
/// of Neutron's ports. Returns the name of the other end, if that has gone with it: what stays was never the other end of this interface.
fn remove_pair(netns: &Path, interface: &str) -> Result<Option<String>, DriverError> {
    let fail = || failed("remove the interface in the pod");
    let removed = run_in_namespace(netns, |namespaces| {
        let Some(link) = namespaces.pod.link(interface).map_err(fail())? else { return Ok(None) };
        let Some(name) = other_end(&namespaces.host, &link).map_err(fail())? else { return Ok(None) };
        namespaces.pod.change(messages::delete_link(link.header.index), 0).map_err(fail())?;
        let is_gone = namespaces.host.link(&name).map_err(fail())?.is_none();
        Ok(is_gone.then_some(name))
    });
    match removed {
        Err(error) if matches!(error.reason(), Reason::NotFound | Reason::Refused) => Ok(None),
        removed => removed,
    }
}

/// Returns the name of the interface on the node to which an interface of a pod refers as its other end; `None` unless it is `tap` and 11
/// characters, as Neutron's agents expect it.
fn other_end(host: &RouteSocket, link: &LinkMessage) -> std::io::Result<Option<String>> {
    let index = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) => Some(*index),
        _ => None,
    });
    let Some(other) = index.map(|index| host.link_at(index)).transpose()?.flatten() else { return Ok(None) };
    let name = other.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    Ok(name.filter(|name| name.starts_with("tap") && name.len() == 14))
}
