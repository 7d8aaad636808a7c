//! The sections `[binding]` and `[node_port]`.

use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::MacAddress;

/// The connection of pods to the network of the node, for the command `cni-daemon`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BindingOptions {
    /// The bridges of Linux and Open vSwitch to which pods may be connected. A name that ends in `*` permits each bridge whose name
    /// begins with the text before the `*`. A VIF on another bridge is refused, because tenants can write annotations. The default permits
    /// those of Neutron's agents; `neutron_defaults.ovs_bridge` must be among them.
    pub bridges: Vec<String>,
    /// The Unix socket of OVSDB, for VIFs of Open vSwitch.
    #[schemars(length(min = 1))]
    pub ovsdb: PathBuf,
    /// The interface of the node that carries the VLAN and macvlan interfaces of nested pods. If not set: the interface of the
    /// default route.
    #[schemars(length(min = 1, max = 15), example = &"ens3")]
    pub link_iface: Option<String>,
}

impl Default for BindingOptions {
    fn default() -> Self {
        let bridges = ["br-int", "brq*"].map(str::to_owned).to_vec();
        Self { bridges, ovsdb: "/run/openvswitch/db.sock".into(), link_iface: None }
    }
}

/// The Neutron port of the node, by which the node itself reaches its pods: for probes of the kubelet, host ports, and pods in the
/// network of the node. `cni-daemon` makes it an internal port of Open vSwitch.
///
/// Without it, the network must route between nodes and pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodePortOptions {
    /// The id of the port in Neutron. If not set, there is no port of the node.
    #[schemars(length(min = 11, max = 64), example = &"889e8fb0-8b3a-4f0e-9a77-0123456789ab")]
    pub port_id: Option<String>,
    /// The MAC address of the port. Needed with `port_id`.
    #[schemars(with = "Option<String>", length(min = 17, max = 17), example = &"fa:16:3e:00:00:01")]
    pub mac: Option<MacAddress>,
    /// The addresses of the port, each with the length of its subnet's prefix: `10.0.0.5/24`.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// The bridge of Open vSwitch.
    #[schemars(length(min = 1, max = 15))]
    pub bridge: String,
    /// The MTU of the network in bytes. If not set, Open vSwitch chooses it.
    #[schemars(range(min = 68, max = 65535), example = 1450)]
    pub mtu: Option<u32>,
}

impl Default for NodePortOptions {
    fn default() -> Self {
        Self { port_id: None, mac: None, addresses: Vec::new(), bridge: "br-int".to_owned(), mtu: None }
    }
}
