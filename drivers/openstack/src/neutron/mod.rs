//! Ports of pods: the drivers `neutron-vif`, `nested-vlan` and `nested-macvlan`, bulk creation for the VIF pools `neutron` and `nested`,
//! and the security groups of network policies.
//!
//! | module | content |
//! |---|---|
//! | `wire`, `api` | the JSON bodies of ports and trunks, and the calls |
//! | `ports`, `creation` | marked ports: creation, lists, ownership, deletion |
//! | `adoption` | adoption of ports of Kuryr, for a migration |
//! | `translate` | conversion of ports to VIFs |
//! | `activation` | the status of ports, polled until they are ACTIVE |
//! | `nodes`, `trunks`, `vlans`, `address_pairs` | the parents of nested ports |
//! | `bulk`, `batches` | bulk creation of ports for VIF pools |
//! | `vif`, `nested_vlan`, `nested_macvlan` | the VIF drivers |
//! | `security_groups` | the driver of network policies |

mod activation;
mod address_pairs;
mod adoption;
pub(crate) mod api;
mod batches;
mod bulk;
mod creation;
mod nested_macvlan;
mod nested_vlan;
mod nodes;
mod options;
mod ownership;
mod ports;
mod security_groups;
mod translate;
mod trunks;
mod vif;
mod vlans;
pub(crate) mod wire;

pub use self::nested_macvlan::NestedMacvlanDriver;
pub use self::nested_vlan::NestedVlanDriver;
pub use self::options::{PodVifNestedOptions, PortOptions};
pub use self::ports::MarkedPorts;
pub use self::security_groups::NeutronSecurityGroups;
pub use self::vif::NeutronVifDriver;
