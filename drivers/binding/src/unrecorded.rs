//! Removes what a container has, of which the daemon has no record: because its state was lost, or because Kuryr's daemon bound the pod.

use std::path::Path;

use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use staffetta_driver::{DriverError, Reason};

use crate::error::failed;
use crate::namespace::run_in_namespace;
use crate::netlink::RouteSocket;
use crate::ovsdb::{InterfaceRow, Ovsdb};
use crate::{host_interface, messages};

/// Removes the veth pair of the interface `interface` in the network namespace `netns`, with its port of Open vSwitch and, after hybrid
/// plug, its Linux bridge, and all interfaces on the node and ports of Open vSwitch that have the mark of `owner`. What another owner has
/// is left alone.
pub(crate) fn unplug(ovsdb: &Ovsdb, owner: &str, netns: &Path, interface: &str) -> Result<(), DriverError> {
    let removed = remove_pair(netns, interface, |tap| ports(ovsdb, owner, tap))?;
    let host = RouteSocket::open().map_err(failed("remove the interfaces on the node"))?;
    if let Some((tap, rows)) = removed {
        for row in &rows {
            ovsdb.remove(row)?;
        }
        for name in [sibling("qvo", &tap), sibling("qbr", &tap)] {
            host_interface::remove_unless_of_another(&host, &name, owner)?;
        }
    }
    host_interface::remove_all(&host, owner)?;
    if !ovsdb.is_present() {
        return Ok(());
    }
    ovsdb.names_of(owner)?.iter().try_for_each(|name| ovsdb.remove_own(name, owner))
}

/// Returns the name of another interface of the port whose interface is `tap`: they have the start of its id in common.
fn sibling(prefix: &str, tap: &str) -> String {
    format!("{prefix}{}", &tap["tap".len()..])
}

/// Returns the ports of Open vSwitch of the interface `tap`, or of its bridge after hybrid plug, except for those of another owner.
fn ports(ovsdb: &Ovsdb, owner: &str, tap: &str) -> Result<Vec<InterfaceRow>, DriverError> {
    let mut rows = Vec::new();
    if ovsdb.is_present() {
        for name in [tap.to_owned(), sibling("qvo", tap)] {
            rows.extend(ovsdb.interface(&name)?);
        }
    }
    rows.retain(|row| !row.internal && row.owner.as_deref().is_none_or(|other| other == owner));
    Ok(rows)
}

/// Removes the interface `interface` in the network namespace `netns` if it is an end of a veth pair whose other end is called like those
/// of Neutron's ports. Returns the name of the other end, if that has gone with it: what stays was never the other end of this interface.
/// `before` is called with this name first; what it returns is returned too, and after its error nothing is removed.
fn remove_pair<T: Send>(
    netns: &Path,
    interface: &str,
    before: impl FnOnce(&str) -> Result<T, DriverError> + Send,
) -> Result<Option<(String, T)>, DriverError> {
    let fail = || failed("remove the interface in the pod");
    let removed = run_in_namespace(netns, |namespaces| {
        let Some(link) = namespaces.pod.link(interface).map_err(fail())? else { return Ok(None) };
        let Some(name) = other_end(&namespaces.host, &link).map_err(fail())? else { return Ok(None) };
        let found = before(&name)?;
        namespaces.pod.change(messages::delete_link(link.header.index), 0).map_err(fail())?;
        let is_gone = namespaces.host.link(&name).map_err(fail())?.is_none();
        Ok(is_gone.then_some((name, found)))
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
