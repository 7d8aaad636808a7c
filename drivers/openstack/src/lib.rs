//! OpenStack: one client of Keystone, Neutron and Octavia, and the drivers on it.
//!
//! A [`Cloud`] is reached as its [`Access`] says, which comes from the section `[neutron]` ([`NeutronOptions`]) or from
//! clouds.yaml. It has a [`Service`] each for networks and load balancers; a service makes [`Call`]s, and what it refuses is
//! an [`OpenStackError`], which knows what it means to a driver.
//!
//! | module | what it holds |
//! |---|---|
//! | `access` | how a cloud is reached: options, clouds.yaml, secrets |
//! | `identity` | the token: logging in, renewing, the catalogue |
//! | `cloud` | the client: calls, pages, the limit of calls in flight, what a service can do |
//! | `error` | what a service refuses, and what that means |
//! | `defaults`, `annotation_project`, `subnets` | the drivers of projects, subnets and security groups |
//! | `namespace_network` | the driver of namespace networks |
//! | [`mark`] | how what we make is told from what others make |
//! | `octavia` | load balancers of services |
//! | `floating_ip` | public addresses of services |
//! | `neutron` | ports of pods: the VIF drivers, ports in stock for pools, and the security groups of network policies |

mod access;
mod annotation_project;
mod cached;
mod cloud;
mod defaults;
mod error;
mod floating_ip;
mod identity;
pub mod mark;
mod namespace_network;
mod namespaces;
mod neutron;
mod octavia;
mod subnets;

pub use access::{
    Access, AccessError, AccessMistake, Auth, Credential, Domain, Environment, Interface, NeutronOptions,
    Scope, Secret, Tls, Urls, User,
};
pub use annotation_project::AnnotationProject;
pub use cloud::{Call, Cloud, CloudError, Service, ServiceKind};
pub use defaults::{
    DefaultProject, DefaultSecurityGroups, DefaultServiceSubnets, NamespaceSubnetOptions, NeutronDefaults,
};
pub use error::{OpenStackError, Problem, Refusal};
pub use floating_ip::NeutronFloatingIps;
pub use namespace_network::NamespaceNetworks;
pub use namespaces::{Namespaces, PROJECT};
pub use neutron::{
    NestedMacvlanDriver, NestedStock, NestedVlanDriver, NeutronSecurityGroups, NeutronStock,
    NeutronVifDriver, PodVifNestedOptions, PortOptions,
};
pub use octavia::{LbAlgorithm, LbaasV2Driver, MemberMode, MemberSubnets, OctaviaDefaults};
pub use subnets::{DefaultPodSubnets, NamespacePodSubnets, Subnets};
