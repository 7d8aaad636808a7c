//! Pods get VIFs and services get load balancers: the handlers vif, lbaasspec and lb.
//!
//! | handler | kind | what it writes |
//! |---|---|---|
//! | [`vif::VifHandler`] | Pod | the annotation `openstack.org/kuryr-vif` |
//! | [`lbaasspec::LbaasSpecHandler`] | Service | the annotation `openstack.org/kuryr-lbaas-spec` |
//! | [`lb::LbHandler`] | Service, EndpointSlice or Endpoints | the annotation `openstack.org/kuryr-lbaas-state`, the status |
//!
//! The annotations are those of Kuryr, so that what binds interfaces on a node today goes on doing so.

pub mod annotation;
#[cfg(test)]
mod api_server;
pub mod lb;
pub mod lbaasspec;
pub mod os_vif;
mod owners;
pub mod versioned_object;
pub mod vif;
