//! VIFs of the class `VIFBridge` whose bridge is connected to Open vSwitch (`ovs_hybrid_plug`): the agent of Neutron filters their traffic
//! with iptables, which sees only the frames of a Linux bridge.

use std::path::Path;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use staffetta_driver::{DriverError, Reason, VifAttachment, VifBindingDriver, interface_name};

use crate::announcement::announce;
use crate::bridges::PermittedBridges;
use crate::error::failed;
use crate::host_interface::{self, remove_leftover};
use crate::linux_bridge::bridge;
use crate::netlink::RouteSocket;
use crate::ovsdb::{Ovsdb, PortRow};
use crate::{linux_bridge, messages, pod_interface, unrecorded};

/// The value of the field `plugin` of VIFs of Open vSwitch, in `os_vif`.
const OVS: &str = "ovs";

/// The driver that binds VIFs of the class `VIFBridge`. A VIF of the plugin `ovs` gets a Linux bridge of its own, which a veth pair
/// connects to Open vSwitch. Any other VIF becomes a port of an existing Linux bridge, which an agent of Neutron creates.
///
/// The interfaces are named as Neutron's agent expects it, after the id of the port: the bridge `qbr`, its port `qvb`, and the port `qvo`
/// of Open vSwitch.
#[derive(Clone, Debug)]
pub struct BridgeBinding {
    ovsdb: Ovsdb,
    bridges: PermittedBridges,
}

/// The names of the interfaces of a VIF on the node: its Linux bridge (`qbr`), the port of that bridge (`qvb`), and the port of Open
/// vSwitch (`qvo`).
struct HybridNames {
    bridge: String,
    in_bridge: String,
    in_switch: String,
}

impl HybridNames {
    fn new(attachment: &VifAttachment) -> Self {
        let [bridge, in_bridge, in_switch] =
            ["qbr", "qvb", "qvo"].map(|prefix| interface_name(prefix, attachment.vif.id.as_str()));
        Self { bridge, in_bridge, in_switch }
    }
}

impl BridgeBinding {
    /// Creates the driver for the server of OVSDB at the Unix socket `ovsdb`, which is used for the VIFs of Open vSwitch only. A VIF on
    /// a bridge of Linux or Open vSwitch that is not among `bridges` is refused.
    pub fn new(ovsdb: std::path::PathBuf, bridges: PermittedBridges) -> Self {
        Self { ovsdb: Ovsdb { socket: ovsdb }, bridges }
    }

    /// Creates the Linux bridge of the VIF, and connects it to Open vSwitch. Leftovers of an earlier call are replaced. Returns the type of
    /// the datapath of Open vSwitch.
    fn connect(&self, attachment: &VifAttachment) -> Result<String, DriverError> {
        pod_interface::validate(attachment)?;
        let (step, names) = ("connect the bridge of the VIF", HybridNames::new(attachment));
        let (port_id, mark) = (attachment.vif.id.as_str(), host_interface::mark(&attachment.owner));
        let refused = || DriverError::new(Reason::Refused, step);
        if bridge(attachment)? != names.bridge {
            return Err(refused().detail(format!("the bridge of this VIF is called {}", names.bridge)));
        }
        let switch = attachment.vif.network.bridge.as_deref();
        let switch = switch.ok_or_else(|| refused().detail("the VIF names no bridge of Open vSwitch"))?;
        self.bridges.check(switch)?;
        let datapath = self.ovsdb.datapath(switch)?;
        let host = RouteSocket::open().map_err(failed(step))?;
        // Whoever has this interface has the bridge, too.
        remove_leftover(&host, &attachment.host_interface(), Some(&attachment.owner))?;
        self.ovsdb.make_way(self.ovsdb.own(&names.in_switch, attachment)?)?;
        for name in [&names.in_switch, &names.in_bridge, &names.bridge] {
            remove_leftover(&host, name, None)?;
        }
        let create = |request| host.change(request, NLM_F_CREATE | NLM_F_EXCL).map_err(failed(step));
        // The kernel takes this of an interface that exists and is down.
        let set_up = |name: &str| {
            let index = host_interface::index(&host, name, step)?;
            host.change(messages::without_address(index), 0).map_err(failed(step))?;
            host.change(messages::set_up(index), 0).map_err(failed(step)).map(|()| index)
        };
        create(messages::new_bridge(&names.bridge, mark))?;
        let (index, mtu) = (set_up(&names.bridge)?, attachment.vif.network.mtu);
        create(messages::new_host_pair(&names.in_bridge, index, &names.in_switch, mark, mtu))?;
        set_up(&names.in_switch)?;
        let mac = attachment.vif.address.to_string();
        self.ovsdb.add(PortRow {
            bridge: switch,
            name: &names.in_switch,
            port_id,
            mac: &mac,
            owner: &attachment.owner,
            internal: false,
        })?;
        Ok(datapath)
    }
}

/// Returns `true` if the VIF gets a Linux bridge of its own, connected to Open vSwitch.
fn is_hybrid(attachment: &VifAttachment) -> bool {
    attachment.vif.plugin == OVS
}

impl VifBindingDriver for BridgeBinding {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        if !is_hybrid(attachment) {
            self.bridges.check(bridge(attachment)?)?;
            return linux_bridge::plug(attachment, "");
        }
        let datapath = self.connect(attachment)?;
        linux_bridge::plug(attachment, &datapath)
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        linux_bridge::remove_pair(attachment)?;
        if !is_hybrid(attachment) {
            return Ok(());
        }
        let (names, owner) = (HybridNames::new(attachment), attachment.owner.as_str());
        self.ovsdb.remove_own(&names.in_switch, owner)?;
        let host = RouteSocket::open().map_err(failed("remove the bridge of the VIF"))?;
        host_interface::remove(&host, &names.in_bridge, Some(owner))?;
        host_interface::remove(&host, &names.bridge, Some(owner))
    }

    fn unplug_unrecorded(&self, owner: &str, netns: &Path, interface: &str) -> Result<(), DriverError> {
        unrecorded::unplug(&self.ovsdb, owner, netns, interface)
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        linux_bridge::check(attachment)?;
        if is_hybrid(attachment) {
            self.ovsdb.check(&HybridNames::new(attachment).in_switch, attachment.vif.id.as_str())?;
        }
        Ok(())
    }

    fn announce(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        announce(attachment)
    }
}
