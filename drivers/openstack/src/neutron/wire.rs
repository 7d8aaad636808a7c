//! Ports and trunks, as Neutron writes and reads them. The fields are those of its API reference.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use staffetta_driver::{NetworkId, PortId, ProjectId, SecurityGroupId, Subnet, SubnetId, VifId};

use super::mark::{DEVICE_OWNER, Mark};
use crate::cloud::or_default;

/// A port as it is read. A field that was not asked for, or that the caller may not see, is as good as empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) id: VifId,
    pub(crate) project_id: ProjectId,
    pub(crate) network_id: NetworkId,
    pub(crate) mac_address: String,
    pub(crate) status: String,
    pub(crate) fixed_ips: Vec<FixedIp>,
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
    pub(crate) trunk_details: Option<TrunkDetails>,
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    pub(crate) revision_number: u64,
    /// The request that made or changed it, as the service's log names it.
    #[serde(skip)]
    pub(crate) request_id: Option<String>,
}

/// The fields of a port by which it becomes a VIF.
pub(crate) const VIF_FIELDS: [&str; 14] = [
    "id",
    "project_id",
    "network_id",
    "mac_address",
    "status",
    "fixed_ips",
    "security_groups",
    "device_owner",
    "device_id",
    "description",
    "binding:host_id",
    "binding:vif_type",
    "binding:vif_details",
    "revision_number",
];

impl Port {
    /// Whether packets pass.
    pub(crate) fn active(&self) -> bool {
        self.status == "ACTIVE"
    }

    /// For whom it was made; none when nobody marked it.
    pub(crate) fn mark(&self) -> Option<Mark> {
        Mark::read(&self.description)
    }
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FixedIp {
    pub(crate) subnet_id: SubnetId,
    /// Neutron chooses one when a new port names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip_address: Option<IpAddr>,
}

/// What the mechanism that bound a port says of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VifDetails {
    pub(crate) bridge_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) port_filter: bool,
    /// Null where the agent has not said how it is to be plugged.
    #[serde(deserialize_with = "or_default")]
    pub(crate) ovs_hybrid_plug: bool,
    pub(crate) vhostuser_mode: Option<String>,
    pub(crate) vhostuser_socket: Option<String>,
}

/// A pair of addresses with which a port may send besides its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPair {
    /// An address, or a whole subnet.
    pub(crate) ip_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// What a port shows of the trunk whose parent it is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TrunkDetails {
    pub(crate) trunk_id: String,
    #[serde(default)]
    pub(crate) sub_ports: Vec<SubPort>,
}

/// A trunk as it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Trunk {
    pub(crate) id: String,
    pub(crate) sub_ports: Vec<SubPort>,
}

/// A port of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubPort {
    pub(crate) port_id: VifId,
    pub(crate) segmentation_id: u16,
    #[serde(default = "vlan")]
    pub(crate) segmentation_type: String,
}

impl SubPort {
    /// With a VLAN.
    pub(crate) fn new(port_id: VifId, segmentation_id: u16) -> Self {
        Self { port_id, segmentation_id, segmentation_type: vlan() }
    }
}

fn vlan() -> String {
    "vlan".to_owned()
}

/// A port that is to be made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewPort {
    pub(crate) project_id: ProjectId,
    pub(crate) network_id: NetworkId,
    pub(crate) fixed_ips: Vec<FixedIp>,
    pub(crate) admin_state_up: bool,
    pub(crate) device_owner: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) device_id: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Without any, those of the project's group `default`: Neutron chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_groups: Vec<SecurityGroupId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

impl NewPort {
    /// A port with this mark and an address in each of the subnets; where there is a host, it is bound there.
    pub(crate) fn marked(mark: &Mark, subnets: &[Subnet], host: Option<&str>) -> Self {
        let fixed_ip = |subnet: &Subnet| FixedIp { subnet_id: subnet.id.clone(), ip_address: None };
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

/// What is changed of a port; the rest stays.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PortChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) security_groups: Option<Vec<SecurityGroupId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_address_pairs: Option<Vec<AddressPair>>,
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

/// The port that is the node's.
pub(crate) fn as_port_id(id: &VifId) -> PortId {
    id.as_str().into()
}
