//! Handlers that create network resources for Kubernetes objects: VIFs for pods, load balancers for
//! services, networks for namespaces, and security groups for network policies.
//!
//! | handler | kind | result |
//! |---|---|---|
//! | [`vif::VifHandler`] | Pod | the annotation `openstack.org/kuryr-vif` |
//! | [`lbaasspec::LbaasSpecHandler`] | Service | the annotation `openstack.org/kuryr-lbaas-spec` |
//! | [`lb::LbHandler`] | Service, EndpointSlice or Endpoints | the annotation `openstack.org/kuryr-lbaas-state`, the status |
//! | [`namespace::NamespaceHandler`] | Namespace | the annotation `staffetta.dev/namespace-network` |
//! | [`policy::PolicyHandler`] | NetworkPolicy, Pod, Node | security groups; no annotation |
//!
//! The first three annotations have Kuryr's format, so that Kuryr's CNI plug-in on the nodes keeps
//! working.

pub mod annotation;
mod installation;
pub mod kuryr;
pub mod lb;
pub mod lbaasspec;
pub mod namespace;
mod notices;
mod observers;
pub mod os_vif;
mod owners;
pub mod policy;
pub mod proof;
mod records;
pub mod step_error;
#[cfg(test)]
mod testing;
pub mod versioned_object;
pub mod vif;

pub use installation::Installation;
