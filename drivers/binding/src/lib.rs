//! Drivers that bind VIFs to pods on a node, by rtnetlink and, for Open vSwitch, by OVSDB.
//!
//! | class of the VIF | driver | connection |
//! |---|---|---|
//! | `VIFBridge` | [`BridgeBinding`] | a veth pair and a port of a Linux bridge, which may be connected to Open vSwitch |
//! | `VIFOpenVSwitch` | [`OpenVSwitchBinding`] | a veth pair and a port of an Open vSwitch bridge |
//! | `VIFVlanNested`, `VIFMacvlanNested` | [`NestedBinding`] | a VLAN or macvlan interface on an interface of the node |
//!
//! A VIF on a bridge that is not among the [`PermittedBridges`] is refused. What they create has the mark of its owner, and what has
//! another mark stays as it is.
//!
//! `pod_interface` checks and configures the interface in the pod, `host_interface` the one on the node, `namespace` moves a thread into
//! the network namespace of a pod, `announcement` announces its addresses, `netlink` and `messages` speak rtnetlink.

mod announcement;
mod bridges;
#[cfg(test)]
mod changes;
mod error;
mod ethtool;
mod host_interface;
mod hybrid;
#[cfg(test)]
mod killing;
mod linux_bridge;
mod messages;
mod namespace;
mod nested;
mod netlink;
mod node_port;
mod open_vswitch;
mod options;
mod ovsdb;
mod pod_interface;
mod unrecorded;

pub use bridges::PermittedBridges;
pub use hybrid::BridgeBinding;
pub use nested::NestedBinding;
pub use node_port::NodePort;
pub use open_vswitch::OpenVSwitchBinding;
pub use options::{BindingOptions, NodePortOptions};
