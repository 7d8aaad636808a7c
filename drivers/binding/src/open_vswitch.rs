//! VIFs of the class `VIFOpenVSwitch`: a pair of interfaces, whose end on the node is a port of an Open vSwitch bridge.

use std::path::PathBuf;

use staffetta_driver::{DriverError, Reason, VifAttachment, VifBindingDriver, VifClass};

use crate::error::failed;
use crate::linux_bridge::{create_pair, remove_pair};
use crate::namespace::within;
use crate::netlink::RouteSocket;
use crate::ovsdb::{InterfaceRow, Ovsdb, PortRow};
use crate::{ethtool, pod_interface};

/// The driver of the class `VIFOpenVSwitch`. The agent of Neutron on the node finds the port by its `iface-id`, and reports it as
/// active.
#[derive(Clone, Debug)]
pub struct OpenVSwitchBinding {
    ovsdb: Ovsdb,
}

impl OpenVSwitchBinding {
    /// Creates the driver for the server of OVSDB at the Unix socket `socket`.
    pub fn new(socket: PathBuf) -> Self {
        Self { ovsdb: Ovsdb { socket } }
    }

    /// Returns the existing port called `name` that may be replaced or removed: one that these drivers created, or one of this VIF
    /// whose interface no longer exists. Fails if it belongs to another program.
    fn own(&self, attachment: &VifAttachment, name: &str) -> Result<Option<InterfaceRow>, DriverError> {
        let Some(row) = self.ovsdb.interface(name)? else { return Ok(None) };
        let step = "check the port of Open vSwitch";
        let is_left = row.port_id == attachment.vif.id.as_str()
            && RouteSocket::open().and_then(|host| host.link(name)).map_err(failed(step))?.is_none();
        if row.ours || is_left {
            return Ok(Some(row));
        }
        Err(DriverError::new(Reason::Refused, step).detail(format!("another program has created {name}")))
    }
}

impl VifBindingDriver for OpenVSwitchBinding {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        pod_interface::validate(attachment)?;
        let bridge = bridge(attachment)?;
        let datapath = self.ovsdb.datapath(bridge)?;
        let (name, mac) = (attachment.host_interface(), attachment.vif.address.to_string());
        // Before the interface: Open vSwitch would keep the socket of an earlier one with the same name, and hear nothing of the pod.
        if let Some(old) = self.own(attachment, &name)? {
            self.ovsdb.remove(&old)?;
        }
        within(&attachment.netns, |namespaces| {
            create_pair(attachment, namespaces, None)?;
            if datapath == "netdev" {
                // The datapath in userspace passes frames on without the checksums that the kernel left to the device.
                ethtool::disable_checksums(&attachment.interface)
                    .map_err(failed("disable checksum offload"))?;
            }
            let port_id = attachment.vif.id.as_str();
            let port = PortRow { bridge, name: &name, port_id, mac: &mac, internal: false };
            self.ovsdb.add(port)?;
            pod_interface::configure(attachment, namespaces)
        })
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        remove_pair(attachment)?;
        match self.own(attachment, &attachment.host_interface()) {
            Ok(Some(row)) => self.ovsdb.remove(&row),
            // Nothing of ours is left.
            Ok(None) => Ok(()),
            Err(error) if error.reason() == Reason::Refused => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        within(&attachment.netns, |namespaces| pod_interface::check(attachment, namespaces))?;
        let name = attachment.host_interface();
        match self.ovsdb.interface(&name)? {
            Some(row) if row.port_id == attachment.vif.id.as_str() && row.number.is_some() => Ok(()),
            _ => Err(DriverError::new(Reason::NotFound, "check the port of Open vSwitch")
                .detail(format!("{name} is not a port of Open vSwitch with the id of the VIF"))),
        }
    }
}

/// Returns the name of the bridge of the VIF.
fn bridge(attachment: &VifAttachment) -> Result<&str, DriverError> {
    match &attachment.vif.class {
        VifClass::OpenVSwitch { bridge_name, .. } => Ok(bridge_name),
        class => Err(DriverError::new(Reason::Unsupported, "bind the VIF").detail(class.name().to_owned())),
    }
}
