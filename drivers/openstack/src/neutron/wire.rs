//! The JSON bodies of ports and trunks. The fields are those of Neutron's API reference.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, NetworkId, ProjectId, SecurityGroupId, Subnet, SubnetId, VifId};

use crate::mark::PortMark;
use crate::text::or_default;

/// The `device_owner` of the ports that staffetta creates for pods and pools. The prefix `compute:` is common to all ports of virtual
/// machines. The value is not `compute:kuryr`, because Kuryr deletes ports with that `device_owner` that lack Kuryr's own tags.
pub(crate) const DEVICE_OWNER: &str = "compute:staffetta";
/// The `device_owner` that Neutron gives to subports.
pub(crate) const SUBPORT_OWNER: &str = "trunk:subport";
/// The `device_owner` of Kuryr's ports.
pub(crate) const KURYR_OWNER: &str = "compute:kuryr";

/// A port in a response of Neutron. Fields that were not requested, or that staffetta's OpenStack user may not see, are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PortBody {
    /// The id of the port.
    pub(crate) id: VifId,
    /// The project that owns the port.
    pub(crate) project_id: ProjectId,
    /// The network of the port.
    pub(crate) network_id: NetworkId,
    /// The MAC address, in lower case.
    pub(crate) mac_address: String,
    /// The status: `ACTIVE`, `DOWN`, `BUILD` or `ERROR`.
    pub(crate) status: String,
    /// The IP addresses of the port, each with its subnet.
    pub(crate) fixed_ips: Vec<FixedIpBody>,
    /// The ids of the security groups.
    pub(crate) security_groups: Vec<SecurityGroupId>,
    /// The kind of user of the port, for example [`DEVICE_OWNER`] or [`SUBPORT_OWNER`].
    pub(crate) device_owner: String,
    /// The id of the user of the port: the UID of a pod, or empty.
    pub(crate) device_id: String,
    /// The description, which contains the ownership mark of ports that staffetta created.
    #[serde(deserialize_with = "or_default")]
    pub(crate) description: String,
    /// The node on which Neutron binds the port, or an empty string without one.
    #[serde(rename = "binding:host_id", deserialize_with = "or_default")]
    pub(crate) host: String,
    /// The result of the binding, such as `ovs`, `unbound` or `binding_failed`. `None` if staffetta's OpenStack user may not see it.
    #[serde(rename = "binding:vif_type")]
    pub(crate) vif_type: Option<String>,
    /// Details of the binding, for the switch of the node.
    #[serde(rename = "binding:vif_details", deserialize_with = "or_default")]
    pub(crate) vif_details: VifDetails,
    /// The trunk of which the port is the parent; `None` if it is not the parent of a trunk.
    pub(crate) trunk_details: Option<TrunkBody>,
    /// The addresses other than its own that the port may use.
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    /// The number that Neutron increments with each change of the port, for conditional changes; `None` if Neutron does not support them.
    pub(crate) revision_number: Option<u64>,
    /// The id that Neutron gave to the request that created or updated the port.
    #[serde(skip)]
    pub(crate) request_id: Option<String>,
}

/// The fields of a port that its conversion to a VIF needs, separated by spaces.
pub(crate) const VIF_FIELDS: &str = "id project_id network_id mac_address status fixed_ips security_groups device_owner \
     device_id description binding:host_id binding:vif_type binding:vif_details revision_number";

impl PortBody {
    /// Returns `true` if the status of the port is ACTIVE.
    pub(crate) fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }

    /// Returns the IP addresses of the port.
    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        self.fixed_ips.iter().filter_map(|fixed| fixed.ip_address).collect()
    }

    /// Returns an allowed address pair for each IP address of the port, all with its MAC address. They let a parent port use the addresses.
    pub(crate) fn address_pairs(&self) -> Vec<AddressPair> {
        let mac_address = Some(self.mac_address.clone());
        let pair = |ip: IpAddr| AddressPair { ip_address: ip.to_string(), mac_address: mac_address.clone() };
        self.ips().into_iter().map(pair).collect()
    }

    /// Returns the ownership mark in the description of the port, of any cluster, or `None` if it is no mark.
    pub(crate) fn mark(&self) -> Option<PortMark> {
        PortMark::parse(&self.description)
    }

    /// Returns the ownership mark in the description of the port, or `None` if it is not a mark of this cluster.
    pub(crate) fn mark_of(&self, cluster: &ClusterId) -> Option<PortMark> {
        self.mark().filter(|mark| mark.cluster == *cluster)
    }
}

/// A subnet of a port, with the address of the port in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FixedIpBody {
    /// The id of the subnet.
    pub(crate) subnet_id: SubnetId,
    /// The address. If a request contains none, Neutron chooses a free address of the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip_address: Option<IpAddr>,
}

/// The details of a port's binding (`binding:vif_details`), which depend on Neutron's mechanism driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VifDetails {
    /// The bridge of the node to which the port is plugged.
    pub(crate) bridge_name: Option<String>,
    /// `true` if the mechanism driver enforces the security groups of the port.
    #[serde(deserialize_with = "or_default")]
    pub(crate) port_filter: bool,
    /// `true` if the port is plugged into a Linux bridge in front of Open vSwitch. A null value, which means that the agent did not report
    /// it, is `false`.
    #[serde(deserialize_with = "or_default")]
    pub(crate) ovs_hybrid_plug: bool,
    /// The mode of the vhost-user socket of the node's side: `client` or `server`.
    pub(crate) vhostuser_mode: Option<String>,
    /// The path of the vhost-user socket.
    pub(crate) vhostuser_socket: Option<String>,
}

/// An allowed address pair: an address that a port may use in addition to its own, with a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPair {
    /// An IP address or a CIDR.
    pub(crate) ip_address: String,
    /// The MAC address; the one of the port if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// A trunk. Its id is named `id` in the trunk itself, and `trunk_id` in the `trunk_details` of its parent port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TrunkBody {
    /// The id of the trunk.
    #[serde(alias = "trunk_id")]
    pub(crate) id: String,
    /// The subports of the trunk.
    pub(crate) sub_ports: Vec<SubportBody>,
}

/// A subport of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SubportBody {
    /// The id of the port that is the subport.
    pub(crate) port_id: VifId,
    /// The VLAN id of the subport on the trunk, 1 to 4094.
    pub(crate) segmentation_id: u16,
}

/// The body of a request that creates a port.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewPort {
    /// The project that will own the port.
    pub(crate) project_id: ProjectId,
    /// The network of the port.
    pub(crate) network_id: NetworkId,
    /// The subnets in which the port gets an address each.
    pub(crate) fixed_ips: Vec<FixedIpBody>,
    /// The administrative state: always up, `true`.
    pub(crate) admin_state_up: bool,
    /// The kind of user of the port, such as [`DEVICE_OWNER`].
    pub(crate) device_owner: &'static str,
    /// The UID of the pod. It is empty for subports, for pooled ports and for ports of virtual addresses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) device_id: String,
    /// The ownership mark, by which the port is found again.
    pub(crate) description: String,
    /// The name of the port, for people. A port of a pod or of a pool has one only if `port_debug` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The security groups. If the list is empty, the port gets the default group of its project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_groups: Vec<SecurityGroupId>,
    /// The tags that repeat the ownership mark; absent where Neutron accepts none in this request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    /// The node on which Neutron binds the port, or `None` if Neutron is not to bind it.
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

impl NewPort {
    /// Returns the request for a port with this ownership mark and an address in each of the subnets. Neutron binds the port on `host` if
    /// one is given. The caller sets the project.
    pub(crate) fn marked(mark: &PortMark, subnets: &[Subnet], host: Option<&str>) -> Self {
        let fixed_ip = |subnet: &Subnet| FixedIpBody { subnet_id: subnet.id.clone(), ip_address: None };
        Self {
            project_id: ProjectId::default(),
            network_id: subnets.first().map(|subnet| subnet.network.id.clone()).unwrap_or_default(),
            fixed_ips: subnets.iter().map(fixed_ip).collect(),
            admin_state_up: true,
            device_owner: DEVICE_OWNER,
            device_id: String::new(),
            description: mark.to_string(),
            name: None,
            security_groups: Vec::new(),
            tags: mark.tags(),
            host: host.map(str::to_owned),
        }
    }
}
