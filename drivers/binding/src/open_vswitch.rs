//! VIFs of the class `VIFOpenVSwitch`: a veth pair, whose end on the node is a port of an Open vSwitch bridge.

use std::path::{Path, PathBuf};

use staffetta_driver::{DriverError, Reason, VifAttachment, VifBindingDriver, VifClass};

use crate::announcement::announce;
use crate::bridges::PermittedBridges;
use crate::linux_bridge::{create_pair, remove_pair};
use crate::namespace::run_in_namespace;
use crate::ovsdb::{Ovsdb, PortRow};
use crate::{ethtool, pod_interface, unrecorded};

/// The driver that binds VIFs of the class `VIFOpenVSwitch`. The agent of Neutron on the node finds the port by its `iface-id`, and
/// reports it as active.
#[derive(Clone, Debug)]
pub struct OpenVSwitchBinding {
    ovsdb: Ovsdb,
    bridges: PermittedBridges,
}

impl OpenVSwitchBinding {
    /// Creates the driver for the server of OVSDB at the Unix socket `socket`. A VIF on a bridge that is not among `bridges` is refused.
    pub fn new(socket: PathBuf, bridges: PermittedBridges) -> Self {
        Self { ovsdb: Ovsdb { socket }, bridges }
    }
}

impl VifBindingDriver for OpenVSwitchBinding {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        pod_interface::validate(attachment)?;
        let bridge = bridge(attachment)?;
        self.bridges.check(bridge)?;
        let datapath = self.ovsdb.datapath(bridge)?;
        let (name, mac) = (attachment.host_interface(), attachment.vif.address.to_string());
        // Before the interface: Open vSwitch would keep the socket of an earlier one with the same name, and hear nothing of the pod.
        self.ovsdb.make_way(self.ovsdb.own(&name, attachment)?)?;
        run_in_namespace(&attachment.netns, |namespaces| {
            pod_interface::check_addresses(attachment, namespaces)?;
            create_pair(attachment, namespaces, None)?;
            ethtool::prepare_for(&datapath, &attachment.interface)?;
            let (port_id, owner) = (attachment.vif.id.as_str(), attachment.owner.as_str());
            let port = PortRow { bridge, name: &name, port_id, mac: &mac, owner, internal: false };
            self.ovsdb.add(port)?;
            pod_interface::configure(attachment, namespaces)
        })
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        remove_pair(attachment)?;
        self.ovsdb.remove_own(&attachment.host_interface(), &attachment.owner)
    }

    fn unplug_unrecorded(&self, owner: &str, netns: &Path, interface: &str) -> Result<(), DriverError> {
        unrecorded::unplug(&self.ovsdb, owner, netns, interface)
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        run_in_namespace(&attachment.netns, |namespaces| pod_interface::check(attachment, namespaces))?;
        self.ovsdb.check(&attachment.host_interface(), attachment.vif.id.as_str())
    }

    fn announce(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        announce(attachment)
    }
}

/// Returns the name of the Open vSwitch bridge of the VIF. Fails for a VIF of a class other than `VIFOpenVSwitch`.
fn bridge(attachment: &VifAttachment) -> Result<&str, DriverError> {
    match &attachment.vif.class {
        VifClass::OpenVSwitch { bridge_name, .. } => Ok(bridge_name),
        class => Err(DriverError::new(Reason::Unsupported, "bind the VIF").detail(class.name().to_owned())),
    }
}
