//! Ports of pods: the drivers `neutron-vif`, `nested-vlan` and `nested-macvlan`, and the stocks of the pools `neutron` and
//! `nested`.
//!
//! | module | what it holds |
//! |---|---|
//! | `wire`, `api` | ports and trunks as Neutron writes them, and the calls |
//! | `mark`, `ports` | for whom a port was made; making, finding and removing marked ones |
//! | `translate` | how a port becomes a VIF |
//! | `creation` | ports of pods that are made by one call |
//! | `board`, `activation` | which ports are waited for, and one list that answers for many |
//! | `nodes`, `trunks`, `vlans`, `address_pairs` | what nested ports are a part of |
//! | `together` | calls that are made together |
//! | `vif`, `nested_vlan`, `nested_macvlan` | the drivers |
//! | `security_groups` | the security groups of network policies |
//! | `stock` | ports that are made in bulk for whoever comes |

mod activation;
mod address_pairs;
pub(crate) mod api;
mod board;
mod creation;
pub(crate) mod mark;
mod nested_macvlan;
mod nested_vlan;
mod nodes;
mod options;
mod ports;
mod security_groups;
mod stock;
pub(crate) mod together;
mod translate;
mod trunks;
mod vif;
mod vlans;
pub(crate) mod wire;

use std::sync::Arc;

use staffetta_driver::ClusterId;

use self::address_pairs::AddressPairs;
use self::api::Neutron;
use self::nodes::Nodes;
use self::ports::Ports;
use self::trunks::Trunks;
use crate::cloud::Cloud;
use crate::subnets::Subnets;

pub use self::nested_macvlan::NestedMacvlanDriver;
pub use self::nested_vlan::NestedVlanDriver;
pub use self::options::{PodVifNestedOptions, PortOptions};
pub use self::security_groups::NeutronSecurityGroups;
pub use self::stock::{NestedStock, NeutronStock};
pub use self::vif::NeutronVifDriver;

impl NeutronVifDriver {
    /// Makes ports in `cloud` with the mark of `cluster`.
    pub fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId, options: PortOptions) -> Self {
        Self::over(Ports::new(Neutron::new(cloud), subnets, cluster, options))
    }
}

impl NestedVlanDriver {
    /// Makes subports in `cloud` with the mark of `cluster`.
    pub fn new(
        cloud: &Cloud,
        subnets: Arc<Subnets>,
        cluster: ClusterId,
        options: PortOptions,
        nested: PodVifNestedOptions,
    ) -> Self {
        let neutron = Neutron::new(cloud);
        let trunks = Trunks::new(neutron.clone(), nested.worker_nodes_subnets);
        Self::over(Ports::new(neutron, subnets, cluster, options), trunks)
    }
}

impl NestedMacvlanDriver {
    /// Makes ports in `cloud` with the mark of `cluster`.
    pub fn new(
        cloud: &Cloud,
        subnets: Arc<Subnets>,
        cluster: ClusterId,
        options: PortOptions,
        nested: PodVifNestedOptions,
    ) -> Self {
        let neutron = Neutron::new(cloud);
        let nodes = Nodes::new(neutron.clone(), nested.worker_nodes_subnets);
        let pairs = AddressPairs::new(neutron.clone(), nested.rev_update_attempts);
        Self::over(Ports::new(neutron, subnets, cluster, options), nodes, pairs)
    }
}
