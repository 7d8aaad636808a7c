//! VIFs of the classes `VIFVlanNested` and `VIFMacvlanNested`: an interface in the pod on an interface of the node, which is a virtual
//! machine.

use std::fs;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use staffetta_driver::{DriverError, Reason, VifAttachment, VifBindingDriver, VifClass};

use crate::announcement::announce;
use crate::error::failed;
use crate::messages::{self, PodInterfaceSpec};
use crate::namespace::run_in_namespace;
use crate::netlink::RouteSocket;
use crate::{host_interface, pod_interface};

/// The driver that binds VIFs of the classes `VIFVlanNested` and `VIFMacvlanNested`.
#[derive(Clone, Debug, Default)]
pub struct NestedBinding {
    /// The interface of the node that carries the interfaces of pods; `None` for the one with the default route.
    parent: Option<String>,
}

impl NestedBinding {
    /// Creates the driver. The interfaces of pods lie on the interface `parent` of the node; `None` for the one with the default route.
    pub fn new(parent: Option<String>) -> Self {
        Self { parent }
    }

    /// Returns the interface of the node that carries nested VIFs: that of `binding.link_iface`, or else the one of the default route. It
    /// is looked up for each VIF, because it may appear or change while the daemon runs.
    fn parent(&self, host: &RouteSocket) -> Result<LinkMessage, DriverError> {
        let step = "find the interface of the node that carries the VIF";
        let missing = |detail: &str| DriverError::new(Reason::Unavailable, step).detail(detail.to_owned());
        let name = match &self.parent {
            Some(name) => name.clone(),
            None => default_route_interface()
                .ok_or_else(|| missing("the node has no default route; set `binding.link_iface`"))?,
        };
        let link = host.link(&name).map_err(failed(step))?;
        link.ok_or_else(|| {
            missing(&format!("there is no interface {name} on the node (`binding.link_iface`)"))
        })
    }
}

impl VifBindingDriver for NestedBinding {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        pod_interface::validate(attachment)?;
        // The node's interface is read before the thread moves, because `/proc/net` follows the thread.
        let host = RouteSocket::open().map_err(failed("create the interface"))?;
        let parent = self.parent(&host)?;
        if let (Some(mtu), Some(needed)) = (host_interface::mtu(&parent), attachment.vif.network.mtu)
            && mtu < needed
        {
            return Err(DriverError::new(Reason::Refused, "create the interface").detail(format!(
                "the MTU of the network is {needed}, and that of the node's interface only {mtu}"
            )));
        }
        run_in_namespace(&attachment.netns, |namespaces| {
            pod_interface::check_addresses(attachment, namespaces)?;
            let create = || {
                let pod = pod_interface::pod_interface_spec(attachment, namespaces);
                let request = request(attachment, parent.header.index, pod)?;
                Ok(namespaces.host.change(request, NLM_F_CREATE | NLM_F_EXCL))
            };
            if create()?.is_err() {
                pod_interface::remove(attachment, namespaces)?;
                create()?.map_err(failed("create the interface"))?;
            }
            pod_interface::configure(attachment, namespaces)
        })
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        pod_interface::remove_from(attachment)
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        run_in_namespace(&attachment.netns, |namespaces| pod_interface::check(attachment, namespaces))
    }

    fn announce(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        announce(attachment)
    }
}

/// Returns the netlink request that creates the interface of the pod on the interface with the index `parent`. VLAN ids are 1 to 4094 (IEEE
/// 802.1Q); another id, and a VIF of a class that is not nested, are refused.
fn request(
    attachment: &VifAttachment,
    parent: u32,
    pod: PodInterfaceSpec<'_>,
) -> Result<RouteNetlinkMessage, DriverError> {
    let refused = |reason, detail: String| Err(DriverError::new(reason, "bind the VIF").detail(detail));
    match &attachment.vif.class {
        VifClass::VlanNested { vlan_id: vlan_id @ 1..=4094, .. } => {
            Ok(messages::new_vlan(parent, *vlan_id, pod))
        }
        VifClass::VlanNested { vlan_id, .. } => {
            refused(Reason::Refused, format!("{vlan_id} is not a VLAN id"))
        }
        VifClass::MacvlanNested { .. } => Ok(messages::new_macvlan(parent, pod)),
        class => refused(Reason::Unsupported, class.name().to_owned()),
    }
}

/// Returns the name of the interface of the default route of IPv4, from the routing table of this thread's namespace; `None` if there is
/// none.
fn default_route_interface() -> Option<String> {
    let table = fs::read_to_string("/proc/thread-self/net/route").ok()?;
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let default =
        lines.find(|fields| fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000"))?;
    Some((*default.first()?).to_owned())
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{MacAddress, Network, Vif};

    use super::*;

    #[test]
    fn a_vlan_id_that_is_reserved_or_none_is_refused() {
        let is_requested = |vlan_id| {
            let vif = Vif {
                id: "p".into(),
                address: MacAddress([0; 6]),
                active: true,
                plugin: "noop".to_owned(),
                class: VifClass::VlanNested { vif_name: "eth0".to_owned(), vlan_id },
                network: Network::new("n".into()),
                subnets: Vec::new(),
                has_traffic_filtering: false,
                preserve_on_delete: false,
                port_profile: None,
            };
            let attachment = VifAttachment {
                vif,
                netns: "/run/netns/web".into(),
                interface: "eth0".to_owned(),
                default_route: true,
                owner: "c1/eth0".to_owned(),
            };
            let pod = PodInterfaceSpec { name: "eth0", mac: MacAddress([0; 6]), mtu: None, netns: 7 };
            request(&attachment, 3, pod).map_err(|error| error.reason())
        };
        for vlan_id in [1, 4094] {
            is_requested(vlan_id).unwrap();
        }
        for vlan_id in [0, 4095, 4096, u16::MAX] {
            assert_eq!(is_requested(vlan_id).unwrap_err(), Reason::Refused, "{vlan_id}");
        }
    }
}
