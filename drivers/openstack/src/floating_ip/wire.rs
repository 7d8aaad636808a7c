//! Floating IPs, as Neutron writes and reads them. The fields are those of its API reference.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use staffetta_driver::{NetworkId, PortId, ProjectId, PublicIpId, SubnetId};

use crate::cloud::or_default;

/// A floating IP as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FloatingIp {
    pub(super) id: PublicIpId,
    #[serde(rename = "floating_ip_address")]
    pub(super) address: IpAddr,
    #[serde(default)]
    pub(super) port_id: Option<PortId>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) description: String,
    #[serde(default)]
    pub(super) project_id: Option<ProjectId>,
    #[serde(default)]
    pub(super) revision_number: Option<u64>,
}

impl FloatingIp {
    /// Whether it belongs to that project. An administrator sees those of all.
    pub(super) fn is_of(&self, project: &ProjectId) -> bool {
        self.project_id.as_ref() == Some(project)
    }
}

pub(super) const FIELDS: [&str; 6] =
    ["id", "floating_ip_address", "port_id", "description", "project_id", "revision_number"];

/// A floating IP that is to be taken out of a pool.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewFloatingIp<'a> {
    pub(super) floating_network_id: &'a NetworkId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subnet_id: Option<&'a SubnetId>,
    pub(super) project_id: &'a ProjectId,
    pub(super) description: String,
}
