//! The network attachment of a device's applications: validates it against the YANG modules, and writes it into the
//! configuration of an application.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};
use staffetta_driver::DriverError;
use staffetta_driver::app_hosting::DeviceSpec;

use super::addresses::{free_address, gateway};
use super::refusal::invalid;
use crate::spec::{
    AppGigabitEthernet, InterfaceSpec, InterfaceType, PortMode, VirtualPortGroup, VlanInterface, XeSpec,
};

/// The path of the section for the interface in a device specification.
const INTERFACE: &str = "xe.networking.interface";

/// The highest number of an interface in the container for which the YANG module allows a gateway.
const LAST_GATEWAY: u8 = 3;

/// The highest number of an interface in the container that the management port may be connected to.
const LAST_MANAGEMENT: u8 = 3;
/// The highest number of an interface in the container on the management port that may have a gateway.
const LAST_MANAGEMENT_GATEWAY: u8 = 1;

/// The network attachment of a device's applications, from the validated device specification: the interface, and the
/// subnet of static addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodNetwork {
    attachment: NetworkAttachment,
    /// The subnet of the static IP addresses; `None` if applications get addresses by DHCP.
    pub(crate) subnet: Option<Ipv4Net>,
}

/// The interface of the device through which applications reach the network.
#[derive(Clone, Debug, PartialEq)]
enum NetworkAttachment {
    /// A port of the virtual port group `group`, as the interface `guest` of the container.
    PortGroup { group: u8, guest: u8 },
    /// An access port of the switch, as the interface `guest` of the container.
    Access { guest: u8, options: VlanInterface },
    /// A VLAN of the switch, over an access or a trunk port, as the interface `guest` of the container.
    Vlan { mode: PortMode, guest: u8, options: VlanInterface },
    /// The management port of the device, as the interface `guest` of the container.
    Management { guest: u8 },
}

impl PodNetwork {
    /// Reads the network attachment from a device specification. Returns a refusal with the path of the field if the
    /// specification is invalid.
    pub(crate) fn read(spec: &DeviceSpec) -> Result<Self, DriverError> {
        let Some(interface) = &XeSpec::read(spec)?.unwrap_or_default().networking.interface else {
            let attachment = NetworkAttachment::PortGroup { group: 0, guest: 0 };
            return Ok(Self { attachment, subnet: None });
        };
        check_sections(interface)?;
        let (attachment, dhcp, section) = match interface.kind {
            InterfaceType::VirtualPortGroup => {
                let section =
                    interface.virtual_port_group.as_ref().ok_or_else(|| missing("virtualPortGroup"))?;
                (port_group(section)?, section.dhcp, "virtualPortGroup.dhcp")
            }
            InterfaceType::AppGigabitEthernet => {
                let section =
                    interface.app_gigabit_ethernet.as_ref().ok_or_else(|| missing("appGigabitEthernet"))?;
                ethernet(section)?
            }
            InterfaceType::Management => {
                let section = interface.management.as_ref().ok_or_else(|| missing("management"))?;
                let place = "management.guestInterface";
                let guest = up_to(section.guest_interface, LAST_MANAGEMENT, place)?;
                if !section.dhcp {
                    with_gateway(guest, LAST_MANAGEMENT_GATEWAY, place)?;
                }
                (NetworkAttachment::Management { guest }, section.dhcp, "management.dhcp")
            }
        };
        let subnet = match (dhcp, spec.pod_cidr) {
            (true, _) => None,
            (false, Some(subnet)) if free_address(subnet, |_| false).is_none() => {
                let why = "has no address for an application beside that of the gateway";
                return Err(invalid("podCIDR", why));
            }
            (false, Some(subnet)) => Some(subnet.trunc()),
            (false, None) => {
                let why = format!("required, because `{INTERFACE}.{section}` is false");
                return Err(invalid("podCIDR", why));
            }
        };
        Ok(Self { attachment, subnet })
    }

    /// Writes the network attachment into the configuration of an application. `address` is its static IP address;
    /// `None` with DHCP.
    pub(crate) fn apply(&self, app: &mut Value, address: Option<Ipv4Addr>) {
        let subnet = self.subnet.filter(|_| address.is_some());
        let (mask, router) = (subnet.map(|subnet| subnet.netmask()), subnet.and_then(gateway));
        let routed = |guest: &u8| router.map(|_| *guest);
        let network = match &self.attachment {
            NetworkAttachment::PortGroup { group, guest } => json!({
                "vnic-gateway-0": group.to_string(),
                "virtualportgroup-guest-interface-name-1": guest.to_string(),
                "virtualportgroup-guest-ip-address-1": address,
                "virtualportgroup-guest-ip-netmask-1": mask,
                "virtualportgroup-application-default-gateway-1": router,
                "virtualportgroup-guest-interface-default-gateway-1": routed(guest),
            }),
            NetworkAttachment::Access { guest, options } => json!({
                "appintf-vlan-mode": "appintf-access",
                "appintf-access-interface-number": guest,
                "mac-forward-enable": options.mac_forwarding_enabled.then_some(true),
                "mcast-enable": options.multicast_enabled.then_some(true),
                "mirror-enable": options.mirror_enabled.then_some(true),
            }),
            NetworkAttachment::Vlan { mode, guest, options } => {
                let mut rule = json!({
                    "vlan-id": options.vlan,
                    "guest-interface": guest,
                    "mac-forward-enable": options.mac_forwarding_enabled,
                    "mcast-enable": options.multicast_enabled,
                    "mirror-enable": options.mirror_enabled,
                });
                put(&mut rule, json!({ "guest-ip": address, "guest-ipnetmask": mask }));
                app["appintf-vlan-rules"] = json!({ "appintf-vlan-rule": [rule] });
                let access = *mode == PortMode::Access;
                json!({
                    "appintf-vlan-mode": if access { "appintf-access" } else { "appintf-trunk" },
                    "appintf-access-interface-number": access.then_some(guest),
                    "virtualportgroup-application-default-gateway-1": router,
                    "virtualportgroup-guest-interface-default-gateway-1": routed(guest),
                })
            }
            NetworkAttachment::Management { guest } => {
                app["appintf-mgmt"] = json!({ "access-if-num": guest });
                json!({
                    "management-interface-name": guest.to_string(),
                    "management-guest-ip-address": address,
                    "management-guest-ip-netmask": mask,
                    "management-application-gateway": router,
                    "management-guest-interface-default-gateway": routed(guest),
                })
            }
        };
        put(&mut app["application-network-resource"], network);
    }
}

/// Adds the leaves (JSON members) of `leaves` to the YANG container `container`, except those that are
/// `null`.
pub(super) fn put(container: &mut Value, leaves: Value) {
    if let Value::Object(leaves) = leaves {
        for (name, value) in leaves.into_iter().filter(|(_, value)| !value.is_null()) {
            container[name] = value;
        }
    }
}

/// Refuses a specification of an interface with a section that belongs to another type of interface.
fn check_sections(interface: &InterfaceSpec) -> Result<(), DriverError> {
    let sections = [
        ("virtualPortGroup", interface.virtual_port_group.is_some(), InterfaceType::VirtualPortGroup),
        ("appGigabitEthernet", interface.app_gigabit_ethernet.is_some(), InterfaceType::AppGigabitEthernet),
        ("management", interface.management.is_some(), InterfaceType::Management),
    ];
    match sections.iter().find(|(_, there, kind)| *there && *kind != interface.kind) {
        None => Ok(()),
        Some((name, ..)) => {
            let why = format!("does not apply to the type `{:?}`", interface.kind);
            Err(invalid(format!("{INTERFACE}.{name}"), why))
        }
    }
}

/// Returns the refusal of a specification without the section of its interface type.
fn missing(section: &str) -> DriverError {
    invalid(format!("{INTERFACE}.{section}"), "the section of the interface's type is missing")
}

/// Returns `number`, or a refusal if it is above `most`. `what` is the path of the field below the interface.
fn up_to(number: u8, most: u8, what: &str) -> Result<u8, DriverError> {
    bounded(number, most, what, format!("{number} is not between 0 and {most}"))
}

/// Returns the number `guest` of an interface in the container, or a refusal if it is above `max`, the highest one for which the YANG
/// module allows a gateway. Static addresses need a gateway.
fn with_gateway(guest: u8, max: u8, field: &str) -> Result<u8, DriverError> {
    let why = format!(
        "{guest} is not between 0 and {max}: without DHCP a gateway is needed, and only these interfaces support one"
    );
    bounded(guest, max, field, why)
}

/// Returns `number` if it is at most `most`, and otherwise a refusal of the field `what` below the interface, with the reason `why`.
fn bounded(number: u8, most: u8, what: &str, why: String) -> Result<u8, DriverError> {
    if number <= most { Ok(number) } else { Err(invalid(format!("{INTERFACE}.{what}"), why)) }
}

/// Returns the attachment that the section of a virtual port group describes. Refuses a port group or interface number above 3.
fn port_group(section: &VirtualPortGroup) -> Result<NetworkAttachment, DriverError> {
    let group = section.interface.as_deref().unwrap_or("0");
    let number = group.parse().ok().filter(|number| (0..=3_u8).contains(number));
    let group = number.ok_or_else(|| {
        let why = format!("`{}` is not between \"0\" and \"3\"", group.chars().take(20).collect::<String>());
        invalid(format!("{INTERFACE}.virtualPortGroup.interface"), why)
    })?;
    let guest = up_to(section.guest_interface, 3, "virtualPortGroup.guestInterface")?;
    Ok(NetworkAttachment::PortGroup { group, guest })
}

/// Returns the attachment that the section of an internal port of the switch (`AppGigabitEthernet`) describes, `true` if applications get
/// addresses by DHCP, and the path of the option for DHCP. Refuses values that the YANG module does not allow.
fn ethernet(section: &AppGigabitEthernet) -> Result<(NetworkAttachment, bool, &'static str), DriverError> {
    let options = section.vlan_if.clone().unwrap_or_default();
    let (guest, place) = match options.guest_interface {
        Some(guest) => (guest, "appGigabitEthernet.vlanIf.guestInterface"),
        None => (section.guest_interface, "appGigabitEthernet.guestInterface"),
    };
    let guest = up_to(guest, 63, place)?;
    let refused = |what: &str, why: &str| Err(invalid(format!("{INTERFACE}.appGigabitEthernet.{what}"), why));
    match (section.mode, options.vlan) {
        (PortMode::Trunk, 0) => refused("vlanIf.vlan", "a trunk needs the VLAN of the pods, 1 to 4094"),
        (PortMode::Access, 0) if !section.dhcp => {
            refused("dhcp", "must be true: an access port without a VLAN supports only DHCP")
        }
        (PortMode::Access, 0) => {
            Ok((NetworkAttachment::Access { guest, options }, true, "appGigabitEthernet.dhcp"))
        }
        (_, 4095..) => refused("vlanIf.vlan", "a VLAN id is between 1 and 4094"),
        (mode, _) => {
            let dhcp = options.dhcp;
            if !dhcp {
                with_gateway(guest, LAST_GATEWAY, place)?;
            }
            let attachment = NetworkAttachment::Vlan { mode, guest, options };
            Ok((attachment, dhcp, "appGigabitEthernet.vlanIf.dhcp"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(interface: &Value, cidr: Option<&str>) -> Result<PodNetwork, String> {
        let spec = json!({
            "driver": "XE", "address": "r1", "podCIDR": cidr, "xe": { "networking": { "interface": interface } },
        });
        let spec: DeviceSpec = serde_json::from_value(spec).unwrap();
        PodNetwork::read(&spec).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn without_an_interface_it_is_port_group_0_with_dhcp() {
        let network = PodNetwork::read(&DeviceSpec::default()).unwrap();
        let mut app = json!({});
        network.apply(&mut app, None);
        assert_eq!(
            app["application-network-resource"],
            json!({ "vnic-gateway-0": "0", "virtualportgroup-guest-interface-name-1": "0" })
        );
    }

    #[test]
    fn a_bare_section_means_addresses_and_they_need_a_subnet() {
        let bare = json!({ "type": "VirtualPortGroup", "virtualPortGroup": {} });
        let error = read(&bare, None).unwrap_err();
        assert!(error.contains("podCIDR: required, because"), "{error}");
        let subnet = read(&bare, Some("10.0.0.77/24")).unwrap().subnet.unwrap();
        assert_eq!(subnet.to_string(), "10.0.0.0/24");
        assert!(read(&bare, Some("10.0.0.7/32")).unwrap_err().contains("podCIDR: has no address"));
    }

    #[test]
    fn what_the_modules_do_not_allow_is_refused_by_path() {
        let ethernet =
            |section: Value| json!({ "type": "AppGigabitEthernet", "appGigabitEthernet": section });
        for (interface, path) in [
            (json!({ "type": "VirtualPortGroup" }), "virtualPortGroup: the section"),
            (
                json!({ "type": "Management", "virtualPortGroup": {} }),
                "virtualPortGroup: does not apply to the type",
            ),
            (
                json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "interface": "4" } }),
                "virtualPortGroup.interface: `4`",
            ),
            (
                json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "guestInterface": 4 } }),
                "virtualPortGroup.guestInterface: 4",
            ),
            (
                json!({ "type": "Management", "management": { "guestInterface": 4 } }),
                "management.guestInterface: 4",
            ),
            (ethernet(json!({ "mode": "trunk" })), "appGigabitEthernet.vlanIf.vlan: a trunk"),
            (
                ethernet(json!({ "mode": "trunk", "vlanIf": { "vlan": 4095 } })),
                "appGigabitEthernet.vlanIf.vlan: a VLAN",
            ),
            (ethernet(json!({ "mode": "access" })), "appGigabitEthernet.dhcp: must be true"),
            (
                ethernet(json!({ "mode": "access", "dhcp": true, "guestInterface": 64 })),
                "appGigabitEthernet.guestInterface: 64",
            ),
            (
                ethernet(json!({ "mode": "trunk", "guestInterface": 4, "vlanIf": { "vlan": 7 } })),
                "appGigabitEthernet.guestInterface: 4 is not between 0 and 3",
            ),
            (
                ethernet(json!({ "mode": "access", "vlanIf": { "vlan": 7, "guestInterface": 63 } })),
                "appGigabitEthernet.vlanIf.guestInterface: 63 is not between 0 and 3",
            ),
            (
                json!({ "type": "Management", "management": { "guestInterface": 2 } }),
                "management.guestInterface: 2 is not between 0 and 1",
            ),
        ] {
            let error = read(&interface, Some("10.0.0.0/24")).unwrap_err();
            assert!(error.contains(&format!("xe.networking.interface.{path}")), "{error}");
        }
    }

    #[test]
    fn any_interface_in_the_container_will_do_where_a_server_gives_addresses() {
        for interface in [
            json!({ "type": "AppGigabitEthernet", "appGigabitEthernet":
                { "mode": "trunk", "guestInterface": 63, "vlanIf": { "vlan": 7, "dhcp": true } } }),
            json!({ "type": "Management", "management": { "guestInterface": 3, "dhcp": true } }),
        ] {
            assert_eq!(read(&interface, Some("10.0.0.0/24")).unwrap().subnet, None);
        }
    }
}
