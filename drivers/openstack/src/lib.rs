//! Drivers for OpenStack, and the client of Keystone, Neutron and Octavia that they share.
//!
//! An [`Access`] contains the login and the endpoints of a cloud. It is made from the section `[neutron]` ([`NeutronOptions`]) or from
//! clouds.yaml. A [`Cloud`] is the client. It has one [`Service`] for Neutron and one for Octavia. A service creates [`ApiCall`]s, whose
//! errors are [`OpenStackError`]s. These convert to driver errors.
//!
//! | module | content |
//! |---|---|
//! | `access` | the access to a cloud: options, clouds.yaml, secrets |
//! | `http`, `error`, `text` | requests, responses and their errors |
//! | `identity` | the token: login, renewal, catalogue |
//! | `cloud`, `service_kind` | the client: calls, pages, concurrency, capabilities |
//! | `placement`, `projects` | the drivers of projects, subnets and security groups |
//! | `namespace_network` | the driver of namespace networks |
//! | `mark` | ownership marks of resources |
//! | `octavia`, `floating_ip` | load balancers and public addresses of services |
//! | `neutron` | ports of pods: VIF drivers, bulk creation for pools, security groups of network policies |
//! | `adoption` | adoption of what Kuryr created, for a migration |
//! | `poll`, `cached`, `lock` | shared polls, cached responses, locks |

mod access;
mod adoption;
mod cached;
mod cloud;
mod error;
mod floating_ip;
mod http;
mod identity;
mod mark;
mod namespace_network;
mod neutron;
mod octavia;
mod placement;
mod poll;
mod projects;
mod service_kind;
mod text;

pub use access::{
    Access, AccessError, AccessProblem, Auth, Credential, DomainResource, EndpointInterface,
    EndpointOverrides, Environment, IdOrName, NeutronOptions, Secret, TlsOptions,
};
pub use adoption::OpenStackAdoption;
pub use cloud::{ApiCall, Cloud, Quota, Service};
pub use error::{OpenStackError, Rejection};
pub use floating_ip::NeutronFloatingIps;
pub use http::CloudError;
pub use namespace_network::NamespaceNetworks;
pub use neutron::{
    MarkedPorts, NestedMacvlanDriver, NestedVlanDriver, NeutronSecurityGroups, NeutronVifDriver,
    PodVifNestedOptions, PortOptions,
};
pub use octavia::{LbaasV2Driver, MemberMode, MemberSubnets, OctaviaDefaults};
pub use placement::{
    AnnotationProject, DefaultPodSubnets, DefaultProject, DefaultSecurityGroups, DefaultServiceSubnets,
    NamespacePodSubnets, NamespaceSubnetOptions, Namespaces, NeutronDefaults, PROJECT, Subnets,
};
pub use projects::Projects;
