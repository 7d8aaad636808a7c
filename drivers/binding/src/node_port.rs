//! The port of the node itself in the network of its pods.

use std::path::PathBuf;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::LinkFlags;
use staffetta_driver::{DriverError, MacAddress, Reason, interface_name};

use crate::error::failed;
use crate::host_interface::{self, has_mac};
use crate::messages;
use crate::netlink::RouteSocket;
use crate::options::NodePortOptions;
use crate::ovsdb::{InterfaceRow, NODE, Ovsdb, PortRow};
use crate::pod_interface::addresses_of;

/// An internal port of Open vSwitch on the node, so that the node reaches its pods and they reach it.
#[derive(Clone, Debug)]
pub struct NodePort {
    ovsdb: Ovsdb,
    port_id: String,
    mac: MacAddress,
    options: NodePortOptions,
}

impl NodePort {
    /// Validates the options of the port, without creating it; `None` if they name no port. `socket` is the Unix socket of OVSDB. Fails if
    /// an option is missing; the error names it.
    pub fn new(socket: PathBuf, options: NodePortOptions) -> Result<Option<Self>, String> {
        let Some(port_id) = options.port_id.clone() else { return Ok(None) };
        let mac = options.mac.ok_or("`node_port.mac` is missing")?;
        if options.addresses.is_empty() {
            return Err("`node_port.addresses` is empty".to_owned());
        }
        Ok(Some(Self { ovsdb: Ovsdb { socket }, port_id, mac, options }))
    }

    /// Returns the name of the port's interface, and its MAC address.
    pub fn identity(&self) -> (String, MacAddress) {
        (interface_name("tap", &self.port_id), self.mac)
    }

    /// Creates the port unless it exists on its bridge, in place of an unusable one of these drivers, such as one on another bridge or
    /// without its interface. Brings it up with its MAC address and MTU, and adds its addresses, if they are not as they should be. Other
    /// addresses of the port are not changed. Blocks.
    pub fn ensure(&self) -> Result<(), DriverError> {
        let Self { port_id, mac, options: NodePortOptions { addresses, bridge, mtu, .. }, .. } = self;
        let (step, name) = ("set up the port of the node", interface_name("tap", port_id));
        let host = RouteSocket::open().map_err(failed(step))?;
        let exists = host.link(&name).map_err(failed(step))?.is_some();
        let old = self.ovsdb.interface(&name)?;
        let is_ours = |row: &InterfaceRow| row.owner.is_some();
        let is_usable = |row: &&InterfaceRow| {
            exists && is_ours(row) && row.internal && row.port_id == *port_id && row.number.is_some()
        };
        let usable = old.as_ref().filter(is_usable).map(|row| self.ovsdb.is_on(row, bridge));
        if !usable.transpose()?.unwrap_or_default() {
            // A wrong name of a bridge does not cost the node its port.
            self.ovsdb.datapath(bridge)?;
            self.ovsdb.make_way(old.filter(is_ours))?;
            let (mac, owner) = (mac.to_string(), NODE);
            self.ovsdb.add(PortRow { bridge, name: &name, port_id, mac: &mac, owner, internal: true })?;
        }
        let missing = || DriverError::new(Reason::Unavailable, step).detail(format!("there is no {name}"));
        let link = host.link(&name).map_err(failed(step))?.ok_or_else(missing)?;
        let index = link.header.index;
        // The neighbours that the kernel knows are forgotten when the MAC address is set, to whatever value.
        let mac = (!has_mac(&link, *mac)).then_some(*mac);
        let mtu = mtu.filter(|mtu| host_interface::mtu(&link) != Some(*mtu));
        if let Some(mtu) = mtu {
            self.ovsdb.request_mtu(&name, mtu)?;
        }
        if mac.is_some() || mtu.is_some() || !link.header.flags.contains(LinkFlags::Up) {
            host.change(messages::set_link(index, mac, mtu), 0).map_err(failed(step))?;
        }
        let present = addresses_of(&host, index).map_err(failed(step))?;
        for address in addresses.iter().filter(|address| !present.contains(&address.addr())) {
            host.change(messages::new_address(index, *address), NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(|error| failed("add an address of the node")(error).detail(address.to_string()))?;
        }
        Ok(())
    }
}
