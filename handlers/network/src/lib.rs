//! Pods get VIFs, services load balancers, namespaces networks and policies security groups: the handlers vif, lbaasspec, lb,
//! namespace and policy.
//!
//! | handler | kind | what it writes |
//! |---|---|---|
//! | [`vif::VifHandler`] | Pod | the annotation `openstack.org/kuryr-vif` |
//! | [`lbaasspec::LbaasSpecHandler`] | Service | the annotation `openstack.org/kuryr-lbaas-spec` |
//! | [`lb::LbHandler`] | Service, EndpointSlice or Endpoints | the annotation `openstack.org/kuryr-lbaas-state`, the status |
//! | [`namespace::NamespaceHandler`] | Namespace | the annotation `staffetta.dev/namespace-network` |
//! | [`policy::PolicyHandler`] | NetworkPolicy, Pod, Node | nothing |
//!
//! The first three annotations are those of Kuryr, so that what binds interfaces on a node today goes on doing so.

pub mod annotation;
#[cfg(test)]
mod api_server;
mod claims;
pub mod lb;
pub mod lbaasspec;
pub mod namespace;
mod namespaces;
mod network_policies;
#[cfg(test)]
mod notebook;
pub mod os_vif;
mod owners;
pub mod policy;
pub mod versioned_object;
pub mod vif;
