//! Drivers of a world that exists in this process only, good enough to run the whole system on.
//!
//! The world is a [`MemoryNetwork`]: ports start DOWN and become ACTIVE later, subnets run out of addresses, a quota
//! bounds the ports, and [`Faults`] make calls fail, hang or lose their answers. It ends with the process.

mod addresses;
mod app_hosting;
mod app_hosting_call;
mod balancer;
mod devices;
mod faults;
mod ledger;
mod load_balancer;
mod load_balancers;
mod namespaces;
mod network;
mod network_policy;
mod options;
mod pod;
mod port;
mod public_ip;
mod public_ips;
mod security_groups;
mod service;
mod services;
mod stock;
mod vif;

pub use addresses::AddressPool;
pub use app_hosting::{MemoryAppHostingDriver, MemoryAppHostingDrivers};
pub use app_hosting_call::{AppHostingCall, AppHostingMethod};
pub use devices::{MemoryContainer, MemoryDevice, MemoryDevices, MemoryState};
pub use faults::{Fault, Faults};
pub use ledger::Ledger;
pub use load_balancer::{LoadBalancerCall, LoadBalancerMethod, MemoryLoadBalancerDriver};
pub use namespaces::{MemoryNamespaceProject, MemoryNamespaceSubnets, NamespaceCall, NamespaceMethod};
pub use network::MemoryNetwork;
pub use network_policy::{MemoryNetworkPolicyDriver, NetworkPolicyCall, NetworkPolicyMethod};
pub use options::MemoryOptions;
pub use pod::{MemoryPodProject, MemoryPodSecurityGroups, MemoryPodSubnets};
pub use port::Port;
pub use public_ip::{MemoryPublicIpDriver, PublicIpCall, PublicIpMethod};
pub use service::{MemoryServiceProject, MemoryServiceSecurityGroups, MemoryServiceSubnets};
pub use services::MemoryServices;
pub use stock::{MemoryVifStock, StockCall, StockMethod};
pub use vif::{MemoryVifDriver, VifCall, VifMethod};
