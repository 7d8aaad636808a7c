//! A simulated cloud and its drivers, complete enough to run the whole controller with them.
//!
//! The cloud consists of a [`MemoryNetwork`] (subnets, ports, security groups), of [`MemoryServices`] (load balancers, public addresses)
//! and of [`MemoryDevices`] (devices that host applications). The network and the services are also the drivers of projects, subnets and
//! security groups. Ports start DOWN and become ACTIVE later, subnets run out of addresses, quotas apply, and [`Faults`] make calls fail,
//! hang or lose their responses.
//!
//! The drivers named `memory` call the cloud within the process of the controller. Its state is lost when that process ends. With the
//! feature `http`, the module `http` serves the same cloud to other processes; the drivers named `simulated` are its clients.

mod addresses;
mod adoption;
mod app_hosting;
mod bulk_vif;
mod devices;
mod driver;
mod faults;
#[cfg(feature = "http")]
pub mod http;
mod ids;
mod load_balancer;
mod load_balancers;
mod mark;
mod namespace_network;
mod namespaces;
mod network;
mod network_policy;
mod options;
mod placement;
mod port;
mod prefixes;
mod public_ip;
mod public_ips;
mod published;
mod security_groups;
mod services;
mod vif;

pub use adoption::MemoryAdoption;
pub use app_hosting::{MemoryAppHostingDriver, MemoryAppHostingDrivers};
pub use bulk_vif::{BulkVifCall, BulkVifMethod, MemoryBulkVifDriver};
pub use devices::{AppHostingCall, AppHostingMethod, MemoryContainer, MemoryDevice, MemoryDevices};
pub use driver::MemoryDriver;
pub use faults::{Fault, Faults};
pub use load_balancer::{LoadBalancerCall, LoadBalancerMethod, MemoryLoadBalancerDriver};
pub use namespace_network::MemoryNamespaceNetwork;
pub use namespaces::{MemoryNamespaceSubnets, NamespaceCall, NamespaceMethod};
pub use network::MemoryNetwork;
pub use network_policy::{MemoryNetworkPolicyDriver, NetworkPolicyCall, NetworkPolicyMethod};
pub use options::MemoryOptions;
pub use port::MemoryPort;
pub use prefixes::{MemoryPrefixes, PrefixCalls, PrefixMethod, ReadCut};
pub use public_ip::{MemoryPublicIpDriver, PublicIpCall, PublicIpMethod};
pub use published::MemoryPublishedVifs;
pub use services::MemoryServices;
pub use vif::{MemoryVifDriver, VifCall, VifMethod};
