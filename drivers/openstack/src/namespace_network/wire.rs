//! What Neutron tells, as far as it is of interest here.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct NetworkTold {
    pub(super) id: String,
    #[serde(default)]
    pub(super) description: String,
}

#[derive(Deserialize)]
pub(super) struct SubnetTold {
    pub(super) id: String,
}

#[derive(Deserialize)]
pub(super) struct SubnetPoolTold {
    pub(super) ip_version: u8,
}

#[derive(Deserialize)]
pub(super) struct PortTold {
    pub(super) id: String,
    #[serde(default)]
    pub(super) device_id: String,
    #[serde(default)]
    device_owner: String,
    #[serde(default)]
    pub(super) fixed_ips: Vec<FixedIp>,
    #[serde(default)]
    pub(super) description: String,
}

#[derive(Deserialize)]
pub(super) struct TrunkTold {
    pub(super) id: String,
    pub(super) sub_ports: Vec<SubPort>,
}

#[derive(Deserialize)]
pub(super) struct SubPort {
    pub(super) port_id: String,
}

#[derive(Deserialize)]
pub(super) struct FixedIp {
    pub(super) subnet_id: String,
}

impl PortTold {
    /// Whether it is an interface of a router: `network:router_interface`, `network:router_interface_distributed` or
    /// `network:ha_router_replicated_interface` (`neutron_lib.constants`).
    pub(super) fn is_of_router(&self) -> bool {
        self.device_owner.starts_with("network:router_interface")
            || self.device_owner == "network:ha_router_replicated_interface"
    }

    /// Whether it has an address of that subnet.
    pub(super) fn is_in(&self, subnet: &str) -> bool {
        self.fixed_ips.iter().any(|ip| ip.subnet_id == subnet)
    }
}
