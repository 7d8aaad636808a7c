//! Converts ports to VIFs, according to their binding or their parent.

use serde_json::Map;
use staffetta_driver::{
    DriverError, MacAddress, Network, PortProfile, Reason, Subnet, SubnetAddresses, SubnetId, Vif, VifClass,
};
use tracing::warn;

use super::wire::{PortBody, VifDetails};
use crate::error::{DriverResult, StepName};
use crate::placement::SubnetMap;

/// The length to which interface names are truncated. Linux allows 15 characters; Neutron's agents truncate
/// their names to 14.
const INTERFACE_NAME: usize = 14;
const STEP: &str = "convert a port to a VIF";

/// The way in which a port is attached to its node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PortAttachment<'a> {
    /// Neutron binds the port on the node.
    Bound {
        /// The Open vSwitch bridge of bindings that do not name one.
        ovs_bridge: &'a str,
    },
    /// The port is a subport of the trunk of its node, with this VLAN id.
    Vlan(u16),
    /// The allowed address pairs of the node's port contain the addresses of the port.
    Macvlan,
}

/// The status of a port's binding, from `binding:vif_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindingStatus {
    /// The port is bound.
    Bound,
    /// The port is not bound yet.
    Unbound,
    /// No mechanism driver of Neutron could bind the port on its host.
    Failed,
    /// Neutron does not show the binding to staffetta's OpenStack user.
    Hidden,
}

impl BindingStatus {
    /// Returns the binding status of a port that has a host.
    pub(crate) fn of(port: &PortBody) -> Self {
        match port.vif_type.as_deref() {
            Some("binding_failed") => Self::Failed,
            Some("unbound") => Self::Unbound,
            Some(_) => Self::Bound,
            None => Self::Hidden,
        }
    }
}

/// Converts a port to a VIF. The VIF has those addresses of the port that are in `subnets`, in the same order. Fails if the MAC address is
/// invalid, or if the port's binding is not visible or has a type that is not supported.
fn vif(port: &PortBody, subnets: &SubnetMap, kind: PortAttachment<'_>) -> DriverResult<Vif> {
    let address = port.mac_address.parse().map_err(|error| {
        DriverError::new(Reason::Refused, STEP).detail(format!("port {}", port.id)).because(error)
    })?;
    let mut vif = unclassified_vif(port, subnets, address);
    let vif_name = interface("tap", port.id.as_str());
    match kind {
        PortAttachment::Bound { ovs_bridge } => bind(&mut vif, port, ovs_bridge)?,
        PortAttachment::Vlan(vlan_id) => vif.class = VifClass::VlanNested { vif_name, vlan_id },
        PortAttachment::Macvlan => vif.class = VifClass::MacvlanNested { vif_name },
    }
    Ok(vif)
}

/// Converts a port whose addresses are in these subnets to a VIF. Fails if the MAC address is invalid, or if the port's binding is not
/// visible or not supported.
pub(crate) fn vif_in(port: &PortBody, subnets: &[Subnet], kind: PortAttachment<'_>) -> DriverResult<Vif> {
    let subnets = subnets.iter().map(|subnet| (subnet.id.clone(), subnet.clone())).collect();
    vif(port, &subnets, kind)
}

/// Converts a port of a list to a VIF. If [`vif`] fails, logs a warning and returns a VIF of the class `VIFUnbindable`, which no node can
/// use.
pub(crate) fn listed(port: &PortBody, subnets: &SubnetMap, kind: PortAttachment<'_>) -> Vif {
    vif(port, subnets, kind).unwrap_or_else(|error| {
        warn!(port = %port.id, %error, "a port of this cluster cannot be bound by any node");
        unclassified_vif(port, subnets, port.mac_address.parse().unwrap_or(MacAddress([0; 6])))
    })
}

/// Returns the VIF of a port with the class `VIFUnbindable`. The caller replaces the class if a node can use the port.
fn unclassified_vif(port: &PortBody, subnets: &SubnetMap, address: MacAddress) -> Vif {
    let (network, subnets) = addresses(port, subnets);
    Vif {
        id: port.id.clone(),
        address,
        active: port.is_active(),
        plugin: "noop".into(),
        class: VifClass::Other { name: "VIFUnbindable".into(), version: "1.0".into(), fields: Map::new() },
        network,
        subnets,
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    }
}

/// Sets the class and the plugin of the VIF according to the port's binding. Kuryr uses the same classes. Fails if Neutron does not show
/// the binding, or if its type is not supported.
fn bind(vif: &mut Vif, port: &PortBody, ovs_bridge: &str) -> DriverResult<()> {
    let details = &port.vif_details;
    vif.has_traffic_filtering = details.port_filter;
    match port.vif_type.as_deref() {
        // An unbound port is treated like most bound ones; its VIF is written again when the port is ACTIVE.
        Some("ovs" | "vhostuser" | "unbound" | "binding_failed") => {
            let bridge = details.bridge_name.clone().unwrap_or_else(|| ovs_bridge.to_owned());
            vif.plugin = "ovs".into();
            vif.class = open_vswitch(port, details, &bridge);
            vif.network.bridge = Some(bridge);
            vif.port_profile = Some(PortProfile::OpenVSwitch { interface_id: port.id.to_string() });
        }
        Some("bridge") => {
            let usual = || interface("brq", port.network_id.as_str());
            let bridge = details.bridge_name.clone().unwrap_or_else(usual);
            vif.plugin = "linux_bridge".into();
            vif.class = VifClass::Bridge {
                vif_name: interface("tap", port.id.as_str()),
                bridge_name: bridge.clone(),
            };
            vif.network.bridge = Some(bridge);
            vif.network.should_provide_bridge = true;
        }
        Some(other) => {
            let detail = format!("port {}: the VIF type `{other}` is not supported", port.id);
            return Err(DriverError::new(Reason::Unsupported, STEP).detail(detail));
        }
        None => return Err(hidden_binding(STEP, port)),
    }
    Ok(())
}

/// Returns the error of a port whose binding Neutron does not show.
pub(crate) fn hidden_binding(step: StepName, port: &PortBody) -> DriverError {
    let detail = format!(
        "Neutron does not show the binding of port {}; the user needs a role that may see it, such as `service`",
        port.id
    );
    DriverError::new(Reason::Refused, step).detail(detail)
}

/// Returns the class of a port that is plugged into an Open vSwitch bridge.
fn open_vswitch(port: &PortBody, details: &VifDetails, bridge: &str) -> VifClass {
    let id = port.id.as_str();
    match (&details.vhostuser_mode, &details.vhostuser_socket) {
        (Some(mode), Some(socket)) => {
            VifClass::VHostUser { vif_name: interface("vhu", id), path: socket.clone(), mode: mode.clone() }
        }
        _ if details.ovs_hybrid_plug => {
            VifClass::Bridge { vif_name: interface("tap", id), bridge_name: interface("qbr", id) }
        }
        _ => VifClass::OpenVSwitch { vif_name: interface("tap", id), bridge_name: bridge.to_owned() },
    }
}

/// Returns the network of the port, and its addresses by subnet. Addresses in other subnets than `subnets` are omitted.
fn addresses(port: &PortBody, subnets: &SubnetMap) -> (Network, Vec<SubnetAddresses>) {
    let mut network = Network::new(port.network_id.clone());
    let mut addresses: Vec<(&SubnetId, SubnetAddresses)> = Vec::new();
    for fixed in &port.fixed_ips {
        let (Some(ip), Some(subnet)) = (fixed.ip_address, subnets.get(&fixed.subnet_id)) else { continue };
        if subnet.network.id == port.network_id {
            network = subnet.network.clone();
        }
        match addresses.iter_mut().find(|(id, _)| *id == &fixed.subnet_id) {
            Some((_, subnet)) => subnet.ips.push(ip),
            None => addresses.push((&fixed.subnet_id, subnet.with_ips(vec![ip]))),
        }
    }
    (network, addresses.into_iter().map(|(_, addresses)| addresses).collect())
}

/// Returns the name of an interface on the node, as Neutron's agents form it from the id of the port.
fn interface(prefix: &str, id: &str) -> String {
    format!("{prefix}{id}").chars().take(INTERFACE_NAME).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "889e8fb0-3c6e-4c8e-9d3e-2f1a0b5c7d11";

    fn port(binding: &Value) -> PortBody {
        let mut port = json!({
            "id": ID, "network_id": "0a1b2c3d-0000-4000-8000-000000000001", "mac_address": "fa:16:3e:00:00:02",
            "status": "DOWN", "description": null,
            "fixed_ips": [
                { "subnet_id": "s6", "ip_address": "fd00::5" }, { "subnet_id": "s4", "ip_address": "10.0.0.70" },
                { "subnet_id": "s4", "ip_address": "10.0.0.71" }, { "subnet_id": "unknown", "ip_address": "10.9.0.1" },
            ],
        });
        port.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
        serde_json::from_value(port).unwrap()
    }

    fn subnets() -> HashMap<SubnetId, Subnet> {
        let network = Network {
            mtu: Some(1450),
            label: Some("pods".into()),
            ..Network::new("0a1b2c3d-0000-4000-8000-000000000001".into())
        };
        let subnet = |id: &str, cidr: &str| {
            let (network, id): (_, SubnetId) = (network.clone(), id.into());
            let cidr = cidr.parse().unwrap();
            (id.clone(), Subnet { id, network, cidr, gateway: None, dns: Vec::new(), routes: Vec::new() })
        };
        [subnet("s4", "10.0.0.64/26"), subnet("s6", "fd00::/64")].into()
    }

    fn bound(binding: &Value) -> Vif {
        vif(&port(binding), &subnets(), PortAttachment::Bound { ovs_bridge: "br-int" }).unwrap()
    }

    #[test]
    fn a_port_of_open_vswitch_is_on_the_bridge_that_its_binding_names() {
        let vif = bound(&json!({
            "status": "ACTIVE", "binding:vif_type": "ovs",
            "binding:vif_details": { "port_filter": true, "bridge_name": "br-pods", "ovs_hybrid_plug": false },
        }));
        let class =
            VifClass::OpenVSwitch { vif_name: "tap889e8fb0-3c".into(), bridge_name: "br-pods".into() };
        assert_eq!(
            (&vif.class, &*vif.plugin, vif.active, vif.has_traffic_filtering),
            (&class, "ovs", true, true)
        );
        assert_eq!(vif.port_profile, Some(PortProfile::OpenVSwitch { interface_id: ID.into() }));
        assert_eq!((vif.network.mtu, vif.network.bridge.as_deref()), (Some(1450), Some("br-pods")));
        let ips: Vec<_> =
            vif.subnets.iter().map(|subnet| (subnet.cidr.to_string(), subnet.ips.len())).collect();
        assert_eq!(ips, [("fd00::/64".to_owned(), 1), ("10.0.0.64/26".to_owned(), 2)]);
    }

    #[test]
    fn the_bridge_of_the_options_is_taken_where_the_binding_names_none() {
        let vif = bound(&json!({ "binding:vif_type": "ovs", "binding:vif_details": null }));
        let class = VifClass::OpenVSwitch { vif_name: "tap889e8fb0-3c".into(), bridge_name: "br-int".into() };
        assert_eq!((vif.class, vif.has_traffic_filtering, vif.active), (class, false, false));
    }

    #[test]
    fn a_hybrid_port_has_a_bridge_of_its_own() {
        let vif =
            bound(&json!({ "binding:vif_type": "ovs", "binding:vif_details": { "ovs_hybrid_plug": true } }));
        let class =
            VifClass::Bridge { vif_name: "tap889e8fb0-3c".into(), bridge_name: "qbr889e8fb0-3c".into() };
        assert_eq!((vif.class, &*vif.plugin), (class, "ovs"));
        assert!(vif.port_profile.is_some() && vif.network.bridge.as_deref() == Some("br-int"));
    }

    #[test]
    fn a_user_space_switch_is_reached_by_its_socket() {
        let details = json!({ "vhostuser_mode": "server", "vhostuser_socket": "/var/run/vhu889e8fb0-3c" });
        let vif = bound(&json!({ "binding:vif_type": "vhostuser", "binding:vif_details": details }));
        let class = VifClass::VHostUser {
            vif_name: "vhu889e8fb0-3c".into(),
            path: "/var/run/vhu889e8fb0-3c".into(),
            mode: "server".into(),
        };
        assert_eq!((vif.class, &*vif.plugin), (class, "ovs"));
    }

    #[test]
    fn a_port_of_a_linux_bridge_is_on_the_bridge_of_its_network_which_the_node_makes() {
        let vif = bound(&json!({ "binding:vif_type": "bridge" }));
        let class =
            VifClass::Bridge { vif_name: "tap889e8fb0-3c".into(), bridge_name: "brq0a1b2c3d-00".into() };
        assert_eq!((vif.class, &*vif.plugin), (class, "linux_bridge"));
        assert!(vif.network.should_provide_bridge && vif.port_profile.is_none());
    }

    #[test]
    fn nested_ports_are_bound_by_the_node() {
        let nested = port(&json!({ "binding:vif_type": "unbound" }));
        let vlan = vif(&nested, &subnets(), PortAttachment::Vlan(7)).unwrap();
        let class = VifClass::VlanNested { vif_name: "tap889e8fb0-3c".into(), vlan_id: 7 };
        assert_eq!((vlan.class, &*vlan.plugin, vlan.active), (class, "noop", false));
        let macvlan = vif(&nested, &subnets(), PortAttachment::Macvlan).unwrap();
        assert_eq!(macvlan.class, VifClass::MacvlanNested { vif_name: "tap889e8fb0-3c".into() });
        assert!(macvlan.network.bridge.is_none() && macvlan.port_profile.is_none());
    }

    #[test]
    fn what_no_node_binds_and_what_cannot_be_seen_is_refused_by_name() {
        let refused = |binding: &Value| {
            let error =
                vif(&port(binding), &subnets(), PortAttachment::Bound { ovs_bridge: "br-int" }).unwrap_err();
            assert!(!error.transient());
            (error.reason(), error.to_string())
        };
        let (reason, text) = refused(&json!({ "binding:vif_type": "hw_veb" }));
        assert!(reason == Reason::Unsupported && text.contains("`hw_veb`") && text.contains(ID), "{text}");
        let (reason, text) = refused(&json!({}));
        assert!(reason == Reason::Refused && text.contains("role"), "{text}");
        assert_eq!(refused(&json!({ "mac_address": "?", "binding:vif_type": "ovs" })).0, Reason::Refused);
    }

    #[test]
    fn a_port_that_no_node_binds_is_in_a_list_all_the_same() {
        let port = port(&json!({ "mac_address": "?", "binding:vif_type": "hw_veb" }));
        let vif = listed(&port, &subnets(), PortAttachment::Bound { ovs_bridge: "br-int" });
        assert_eq!((vif.id.as_str(), vif.ips().count()), (ID, 3));
        assert!(matches!(vif.class, VifClass::Other { .. }));
    }
}
