//! The read-only lists and containers of the YANG modules. Their leaves are not checked.

use super::Node::{Container, Leaf, List};
use super::{Field, Node, Type};

const TEXT: Node = Leaf(Type::Any);

/// The top container of `Cisco-IOS-XE-app-hosting-oper`, revision 2023-03-01: `app-hosting-oper-data`.
pub(crate) const APP_HOSTING: Node = Container(&[
    ("app", List { keys: NAME, fields: APP }),
    (
        "app-resources",
        List {
            keys: NAME,
            fields: &[
                ("name", TEXT),
                ("cpu", List { keys: NAME, fields: QUOTA }),
                ("memory", List { keys: NAME, fields: QUOTA }),
                ("storage-device", List { keys: NAME, fields: QUOTA }),
            ],
        },
    ),
    ("app-notifications", List { keys: NAME, fields: NOTIFICATION }),
    ("app-globals", Container(&[("iox-enabled", TEXT)])),
]);

/// The top container of `Cisco-IOS-XE-arp-oper`, revision 2022-11-01: `arp-data`.
pub(crate) const ARP: Node = Container(&[(
    "arp-vrf",
    List {
        keys: &["vrf"],
        fields: &[
            ("vrf", TEXT),
            ("arp-oper", List { keys: &["address"], fields: ARP_ENTRY }),
            ("arp-entry", List { keys: &["address", "interface"], fields: ARP_ENTRY }),
        ],
    },
)]);

/// The top container of `Cisco-IOS-XE-device-hardware-oper`, revision 2025-03-01: `device-hardware-data`.
pub(crate) const HARDWARE: Node = Container(&[(
    "device-hardware",
    Container(&[
        ("device-inventory", List { keys: &["hw-type", "hw-dev-index"], fields: INVENTORY }),
        ("device-system-data", Container(SYSTEM)),
    ]),
)]);

/// The top container of `ietf-yang-library`, revision 2016-06-21: `modules-state`.
pub(crate) const LIBRARY: Node = Container(&[
    ("module-set-id", TEXT),
    (
        "module",
        List {
            keys: &["name", "revision"],
            fields: &[("name", TEXT), ("revision", TEXT), ("namespace", TEXT), ("conformance-type", TEXT)],
        },
    ),
]);

const NAME: &[&str] = &["name"];

const APP: &[Field] = &[
    ("name", TEXT),
    ("details", Container(DETAILS)),
    (
        "utilization",
        Container(&[
            ("name", TEXT),
            (
                "cpu-util",
                Container(&[
                    ("requested-application-util", TEXT),
                    ("actual-application-util", TEXT),
                    ("cpu-state", TEXT),
                ]),
            ),
            ("memory-util", Container(&[("memory-allocation", TEXT), ("memory-used", TEXT)])),
        ]),
    ),
    ("network-utils", Container(&[("network-util", List { keys: NAME, fields: NETWORK_UTIL })])),
    ("storage-utils", Container(&[("storage-util", List { keys: NAME, fields: STORAGE_UTIL })])),
    ("processes", Container(&[("process", List { keys: NAME, fields: PROCESS })])),
    (
        "network-interfaces",
        Container(&[("network-interface", List { keys: &["mac-address"], fields: INTERFACE })]),
    ),
    ("guest-routes", Container(&[("guest-route", List { keys: &["route"], fields: &[("route", TEXT)] })])),
    ("pkg-policy", TEXT),
];

const DETAILS: &[Field] = &[
    ("state", TEXT),
    (
        "package-information",
        Container(&[
            ("name", TEXT),
            ("path", TEXT),
            (
                "application",
                Container(&[("name", TEXT), ("installed-version", TEXT), ("type", TEXT), ("owner", TEXT)]),
            ),
            ("url-path", TEXT),
        ]),
    ),
    ("activated-profile-name", TEXT),
    ("resource-reservation", Container(&[("disk", TEXT), ("memory", TEXT), ("cpu", TEXT), ("vcpu", TEXT)])),
    ("docker-run-opts", TEXT),
    ("health-status", TEXT),
];

const INTERFACE: &[Field] =
    &[("mac-address", TEXT), ("attached-interface", TEXT), ("ipv4-address", TEXT), ("network-name", TEXT)];

const NETWORK_UTIL: &[Field] = &[
    ("name", TEXT),
    ("rx-packets", TEXT),
    ("rx-bytes", TEXT),
    ("rx-errors", TEXT),
    ("tx-packets", TEXT),
    ("tx-bytes", TEXT),
    ("tx-errors", TEXT),
];

const STORAGE_UTIL: &[Field] = &[
    ("name", TEXT),
    ("alias", TEXT),
    ("capacity", TEXT),
    ("available", TEXT),
    ("used", TEXT),
    ("usage", TEXT),
];

const PROCESS: &[Field] =
    &[("name", TEXT), ("status", TEXT), ("pid", TEXT), ("uptime", TEXT), ("memory", TEXT)];

const QUOTA: &[Field] =
    &[("name", TEXT), ("quota", TEXT), ("available", TEXT), ("quota-unit", TEXT), ("available-unit", TEXT)];

const NOTIFICATION: &[Field] = &[
    ("name", TEXT),
    ("timestamp", TEXT),
    ("severity-level", TEXT),
    ("host-name", TEXT),
    ("vrf-name", TEXT),
    ("app-id", TEXT),
    ("ev-type", TEXT),
    ("status", TEXT),
    ("message", TEXT),
    ("app-state", TEXT),
];

const ARP_ENTRY: &[Field] = &[
    ("address", TEXT),
    ("enctype", TEXT),
    ("interface", TEXT),
    ("type", TEXT),
    ("mode", TEXT),
    ("hwtype", TEXT),
    ("hardware", TEXT),
    ("time", TEXT),
];

const INVENTORY: &[Field] = &[
    ("hw-type", TEXT),
    ("hw-dev-index", TEXT),
    ("version", TEXT),
    ("part-number", TEXT),
    ("serial-number", TEXT),
    ("hw-description", TEXT),
    ("dev-name", TEXT),
    ("field-replaceable", TEXT),
    ("hw-class", TEXT),
];

const SYSTEM: &[Field] = &[
    ("current-time", TEXT),
    ("boot-time", TEXT),
    ("software-version", TEXT),
    ("rommon-version", TEXT),
    ("last-reboot-reason", TEXT),
    ("reason-severity", TEXT),
    ("unsaved-config", TEXT),
    ("mac-address", TEXT),
];
