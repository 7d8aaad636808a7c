//! The JSON bodies of ports and trunks. The fields are those of Neutron's API reference.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, NetworkId, ProjectId, SecurityGroupId, Subnet, SubnetId, VifId};

use crate::mark::PortMark;
use crate::text::or_default;

/// The `device_owner` of the ports that these drivers create. `compute:` is the prefix of all ports of servers. Kuryr deletes
/// ports of `compute:kuryr` that lack its own marks, so this one differs.
pub(crate) const DEVICE_OWNER: &str = "compute:staffetta";
/// The `device_owner` that Neutron gives to subports.
pub(crate) const SUBPORT_OWNER: &str = "trunk:subport";
/// The `device_owner` of Kuryr's ports.
pub(crate) const KURYR_OWNER: &str = "compute:kuryr";

/// A port. Fields that were not requested, or that the user may not see, are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PortBody {
    pub(crate) id: VifId,
    pub(crate) project_id: ProjectId,
    pub(crate) network_id: NetworkId,
    pub(crate) mac_address: String,
    pub(crate) status: String,
    pub(crate) fixed_ips: Vec<FixedIpBody>,
    pub(crate) security_groups: Vec<SecurityGroupId>,
    pub(crate) device_owner: String,
    pub(crate) device_id: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) description: String,
    #[serde(rename = "binding:host_id", deserialize_with = "or_default")]
    pub(crate) host: String,
    #[serde(rename = "binding:vif_type")]
    pub(crate) vif_type: Option<String>,
    #[serde(rename = "binding:vif_details", deserialize_with = "or_default")]
    pub(crate) vif_details: VifDetails,
    /// The trunk whose parent the port is.
    pub(crate) trunk_details: Option<TrunkBody>,
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    pub(crate) revision_number: u64,
    /// The service's id of the request that created or updated the port.
    #[serde(skip)]
    pub(crate) request_id: Option<String>,
}

/// The fields of a port that its VIF needs.
pub(crate) const VIF_FIELDS: &str = "id project_id network_id mac_address status fixed_ips security_groups device_owner \
     device_id description binding:host_id binding:vif_type binding:vif_details revision_number";

impl PortBody {
    /// Returns `true` if the port forwards packets.
    pub(crate) fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }

    /// The mark of any cluster.
    pub(crate) fn mark(&self) -> Option<PortMark> {
        PortMark::parse(&self.description)
    }

    /// The mark of this cluster.
    pub(crate) fn mark_of(&self, cluster: &ClusterId) -> Option<PortMark> {
        self.mark().filter(|mark| mark.cluster == *cluster)
    }
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FixedIpBody {
    pub(crate) subnet_id: SubnetId,
    /// Neutron chooses an address for a new port without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip_address: Option<IpAddr>,
}

/// The details of a binding, which depend on the mechanism driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VifDetails {
    pub(crate) bridge_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) port_filter: bool,
    /// Null if the agent did not report it.
    #[serde(deserialize_with = "or_default")]
    pub(crate) ovs_hybrid_plug: bool,
    pub(crate) vhostuser_mode: Option<String>,
    pub(crate) vhostuser_socket: Option<String>,
}

/// A pair of addresses that a port may use in addition to its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPair {
    /// An address or a CIDR.
    pub(crate) ip_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// A trunk. The port that is its parent names its id differently.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TrunkBody {
    #[serde(alias = "trunk_id")]
    pub(crate) id: String,
    pub(crate) sub_ports: Vec<SubportBody>,
}

/// A subport of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SubportBody {
    pub(crate) port_id: VifId,
    /// The VLAN.
    pub(crate) segmentation_id: u16,
}

/// A port to be created.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewPort {
    pub(crate) project_id: ProjectId,
    pub(crate) network_id: NetworkId,
    pub(crate) fixed_ips: Vec<FixedIpBody>,
    pub(crate) admin_state_up: bool,
    pub(crate) device_owner: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) device_id: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Without any, the port gets the default group of its project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_groups: Vec<SecurityGroupId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

impl NewPort {
    /// A port with this mark and an address in each of the subnets, to be bound on `host` if there is one.
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
