//! `Cisco-IOS-XE-app-hosting-cfg`, revision 2022-11-01.

use super::Node::{Container, Leaf, List};
use super::{Field, Node, Type};

/// The name of the module, as JSON and paths have it.
pub(crate) const MODULE: &str = "Cisco-IOS-XE-app-hosting-cfg";

/// Its top container: `app-hosting-cfg-data`.
pub(crate) const ROOT: Node = Container(&[
    ("apps", Container(&[("app", List { keys: &["application-name"], fields: APP })])),
    (
        "controls",
        Container(&[
            ("application-hosting-infra-enable-statue", must(255, 0, 1)),
            ("sign-verification", FLAG),
        ]),
    ),
]);

const FLAG: Node = Leaf(Type::Boolean);
const ADDRESS: Node = Leaf(Type::Address);
const IPV6: Node = Leaf(Type::Ipv6);
const PREFIX: Node = range(255, 0, 128);
/// The number of a guest interface.
const GUEST: Node = range(255, 0, 63);
const MODE: Node =
    Leaf(Type::Enumeration(&["appintf-not-set", "appintf-trunk", "appintf-vlan", "appintf-access"]));

const fn range(of_type: u64, least: u64, most: u64) -> Node {
    Leaf(Type::Number { most: of_type, range: (least, most), must: None })
}

const fn must(of_type: u64, least: u64, most: u64) -> Node {
    Leaf(Type::Number { most: of_type, range: (0, of_type), must: Some((least, most)) })
}

const fn text(least: usize, most: usize, allowed: fn(char) -> bool) -> Node {
    Leaf(Type::Text { least, most, allowed })
}

fn word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn profile(character: char) -> bool {
    word(character) || character == '-'
}

fn alphanumeric(character: char) -> bool {
    character.is_ascii_alphanumeric()
}

fn digit(character: char) -> bool {
    character.is_ascii_digit()
}

fn to_three(character: char) -> bool {
    ('0'..='3').contains(&character)
}

fn any(_: char) -> bool {
    true
}

const APP: &[Field] = &[
    ("application-name", text(1, 40, word)),
    ("application-network-resource", Container(NETWORK)),
    ("application-resource-profile", Container(PROFILE)),
    ("application-attached-device", Container(&[("device-name", text(0, 32, alphanumeric))])),
    (
        "appintf-vlan-rules",
        Container(&[("appintf-vlan-rule", List { keys: &["vlan-id"], fields: VLAN_RULE })]),
    ),
    ("start", FLAG),
    ("dev-usbs", Container(&[("dev-usb", List { keys: &["usb-port-num"], fields: USB })])),
    ("docker-resource", FLAG),
    ("run-optss", Container(&[("run-opts", List { keys: &["line-index"], fields: RUN_OPTS })])),
    ("prepend-pkg-opts", FLAG),
    ("appintf-mgmt", Container(MANAGEMENT)),
    (
        "appintf-mgmt-vlans",
        Container(&[("appintf-mgmt-vlan", List { keys: &["vlan-id"], fields: MANAGEMENT_VLAN })]),
    ),
    ("appintf-ports", Container(&[("appintf-port", List { keys: &["port-number"], fields: PORT })])),
    ("app-cam-gintfs", Container(&[("app-cam-gintf", List { keys: &["guest-if"], fields: CAM })])),
];

const PROFILE: &[Field] = &[
    ("profile-name", text(0, 64, profile)),
    ("vcpu", range(65535, 0, 65535)),
    ("cpu-units", range(65535, 0, 20000)),
    ("memory-capacity-mb", range(65535, 0, 16384)),
    ("disk-size-mb", range(65535, 0, 65535)),
    ("pkg-profile-name", text(0, 64, profile)),
    ("cpu-percent", range(255, 0, 100)),
];

const RUN_OPTS: &[Field] = &[("line-index", range(65535, 1, 30)), ("line-run-opts", text(0, 235, any))];

const USB: &[Field] = &[("usb-port-num", range(65535, 0, 65535)), ("usb-port-label", text(0, 63, word))];

const VLAN_RULE: &[Field] = &[
    ("vlan-id", must(65535, 1, 4094)),
    ("guest-interface", must(255, 0, 63)),
    ("guest-ip", ADDRESS),
    ("guest-ipnetmask", ADDRESS),
    ("mac-forward-enable", FLAG),
    ("mirror-enable", FLAG),
    ("guest-ipv6", IPV6),
    ("guest-ipv6-prefix-len", PREFIX),
    ("mcast-enable", FLAG),
];

const MANAGEMENT: &[Field] = &[
    ("vlan-mode", MODE),
    ("trunk-if-num", GUEST),
    ("access-if-num", GUEST),
    ("mac-fwd-enable", FLAG),
    ("mirror-enable", FLAG),
    ("mcast-enable", FLAG),
];

const VLAN_PARAM: &[Field] = &[
    ("guest-if", GUEST),
    ("guest-ip", ADDRESS),
    ("guest-netmask", ADDRESS),
    ("guest-ipv6", IPV6),
    ("guest-ipv6-prefix-len", PREFIX),
    ("mac-fwd-enable", FLAG),
    ("mirror-enable", FLAG),
    ("mcast-enable", FLAG),
];

const MANAGEMENT_VLAN: &[Field] =
    &[("vlan-id", range(65535, 1, 4094)), ("mgmt-vlan-param", Container(VLAN_PARAM))];

const PORT: &[Field] = &[
    ("port-number", range(65535, 0, 15)),
    ("vlan-mode", MODE),
    (
        "appintf-param",
        Container(&[
            ("trunk-if-num", GUEST),
            ("access-if-num", GUEST),
            ("mac-fwd-enable", FLAG),
            ("mirror-enable", FLAG),
            ("mcast-enable", FLAG),
        ]),
    ),
    (
        "vlan-nodes",
        Container(&[(
            "vlan-node",
            List {
                keys: &["vlan-id"],
                fields: &[("vlan-id", range(65535, 1, 4094)), ("appintf-vlan-param", Container(VLAN_PARAM))],
            },
        )]),
    ),
];

const CAM: &[Field] = &[
    ("guest-if", GUEST),
    ("guest-ip", ADDRESS),
    ("guest-netmask", ADDRESS),
    ("guest-ipv6", IPV6),
    ("guest-ipv6-prefix-len", PREFIX),
];

/// The names are the module's, slips of the pen included: the first gateway is a default one, and a hyphen is missing here
/// and there.
const NETWORK: &[Field] = &[
    ("vnic-gateway-0", text(1, 2, digit)),
    ("virtualportgroup-guest-interface-name-1", text(1, 1, to_three)),
    ("virtualportgroup-guest-ip-address-1", ADDRESS),
    ("virtualportgroup-guest-ip-netmask-1", ADDRESS),
    ("virtualportgroup-application-default-gateway-1", ADDRESS),
    ("nameserver-0", ADDRESS),
    ("virtualportgroup-guest-interface-default-gateway-1", must(255, 0, 3)),
    ("vnic-gateway-1", text(1, 2, digit)),
    ("virtualportgroup-guest-interface-name-2", text(1, 1, to_three)),
    ("virtualportgroup-guest-ip-address-2", ADDRESS),
    ("virtualportgroup-guest-ip-netmask-2", ADDRESS),
    ("virtualportgroup-application-gateway-2", ADDRESS),
    ("nameserver-1", ADDRESS),
    ("virtualportgroup-guest-interface-default-gateway-2", must(255, 0, 1)),
    ("vnic-gateway-2", text(1, 2, digit)),
    ("virtualportgroup-guest-interface-name-3", text(1, 1, to_three)),
    ("virtualportgroup-guest-ip-address-3", ADDRESS),
    ("virtualportgroup-guest-ip-netmask-3", ADDRESS),
    ("virtualportgroup-application-gateway-3", ADDRESS),
    ("nameserver2", ADDRESS),
    ("virtualportgroup-guest-interface-default-gateway-3", must(255, 0, 1)),
    ("vnic-gateway-3", text(1, 2, digit)),
    ("virtualportgroup-guest-interface-name-4", text(1, 1, to_three)),
    ("virtualportgroup-guest-ip-address-4", ADDRESS),
    ("virtualportgroup-guest-ip-netmask-4", ADDRESS),
    ("virtualportgroup-application-gateway-4", ADDRESS),
    ("nameserver-3", ADDRESS),
    ("virtualportgroup-guest-interface-default-gateway-4", must(255, 0, 1)),
    ("management-interface-name", text(1, 1, to_three)),
    ("management-guest-ip-address", ADDRESS),
    ("management-guest-ip-netmask", ADDRESS),
    ("management-application-gateway", ADDRESS),
    ("nameseerver4", ADDRESS),
    ("management-guest-interface-default-gateway", must(255, 0, 1)),
    (
        "application-mac-address",
        Container(&[("mac-address", Leaf(Type::Mac)), ("mac-interface-name", text(0, 32, alphanumeric))]),
    ),
    ("appintf-guest-interface-number", must(255, 0, 63)),
    ("appintf-vlan-mode", MODE),
    ("appintf-access-interface-number", must(255, 0, 63)),
    ("mac-forward-enable", FLAG),
    ("mirror-enable", FLAG),
    ("vpg-guest-ipv6-addr-1", IPV6),
    ("ipv6-prefix-len-1", PREFIX),
    ("vpg-guest-ipv6-addr-2", IPV6),
    ("ipv6-prefix-len-2", PREFIX),
    ("vpg-guest-ipv6-addr-3", IPV6),
    ("ipv6-prefix-len-3", PREFIX),
    ("vpg-guest-ipv6-addr-4", IPV6),
    ("ipv6-prefix-len-4", PREFIX),
    ("mgmt-guest-ipv6-addr", IPV6),
    ("mgmt-ipv6-prefix-len", PREFIX),
    ("vpg-app-default-ipv6-gw", IPV6),
    ("vpg-guest-if-ipv6-def-gw", range(255, 0, 31)),
    ("mcast-enable", FLAG),
];
