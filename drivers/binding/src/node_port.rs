//! The port of the node itself in the network of its pods.

use std::path::PathBuf;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use staffetta_driver::{DriverError, MacAddress, interface_name};

use crate::error::failed;
use crate::netlink::RouteSocket;
use crate::options::NodePortOptions;
use crate::ovsdb::{InterfaceRow, Ovsdb, PortRow};
use crate::{host_interface, messages};

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

    /// Creates the port unless it exists on its bridge, in place of an unusable one of these drivers, such as one on another bridge. Sets
    /// its MAC address and MTU, and adds its addresses. Other addresses of the port are not changed. Blocks.
    pub fn ensure(&self) -> Result<(), DriverError> {
        let Self { port_id, mac, options: NodePortOptions { addresses, bridge, mtu, .. }, .. } = self;
        let name = interface_name("tap", port_id);
        let old = self.ovsdb.interface(&name)?;
        let is_usable = |row: &&InterfaceRow| row.ours && row.port_id == *port_id && row.number.is_some();
        let usable = old.as_ref().filter(is_usable).map(|row| self.ovsdb.is_on(row, bridge));
        if !usable.transpose()?.unwrap_or_default() {
            if let Some(old) = old.filter(|row| row.ours) {
                // A wrong name of a bridge does not cost the node its port.
                self.ovsdb.datapath(bridge)?;
                self.ovsdb.remove(&old)?;
            }
            let port = PortRow { bridge, name: &name, port_id, mac: &mac.to_string(), internal: true };
            self.ovsdb.add(port)?;
        }
        let step = "set up the port of the node";
        let host = RouteSocket::open().map_err(failed(step))?;
        let index = host_interface::index(&host, &name, step)?;
        host.change(messages::set_link(index, *mac, *mtu), 0).map_err(failed(step))?;
        for address in addresses {
            host.change(messages::new_address(index, *address), NLM_F_CREATE | NLM_F_REPLACE)
                .map_err(|error| failed("add an address of the node")(error).detail(address.to_string()))?;
        }
        Ok(())
    }
}
