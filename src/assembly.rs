//! Which handlers and drivers exist. An outside controller starts from [`registry`] and adds its own.

mod app_hosting;
#[cfg(feature = "iosxe")]
mod iosxe;
mod memory;
mod network;
#[cfg(feature = "openstack")]
mod openstack;
mod policy;
mod rehearsal;
#[cfg(feature = "simulated")]
mod simulated;
mod vif_pool;
mod virtual_node;

use staffetta_handler::Registry;

use crate::config;

pub use memory::world;

/// Everything that ships.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    config::register(&mut registry);
    network::interfaces(&mut registry);
    network::handlers(&mut registry);
    policy::register(&mut registry);
    vif_pool::drivers(&mut registry);
    vif_pool::further_networks(&mut registry);
    memory::drivers(&mut registry);
    #[cfg(feature = "openstack")]
    openstack::drivers(&mut registry);
    app_hosting::drivers(&mut registry);
    #[cfg(feature = "iosxe")]
    iosxe::drivers(&mut registry);
    virtual_node::handlers(&mut registry);
    #[cfg(feature = "simulated")]
    simulated::drivers(&mut registry);
    registry
}
