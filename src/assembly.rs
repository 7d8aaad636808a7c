//! Which handlers and drivers exist. An outside controller starts from [`registry`] and adds its own.

mod app_hosting;
#[cfg(feature = "iosxe")]
mod iosxe;
mod memory;
mod network;
mod rehearsal;
#[cfg(feature = "simulated")]
mod simulated;
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
    memory::drivers(&mut registry);
    app_hosting::drivers(&mut registry);
    #[cfg(feature = "iosxe")]
    iosxe::drivers(&mut registry);
    virtual_node::handlers(&mut registry);
    #[cfg(feature = "simulated")]
    simulated::drivers(&mut registry);
    registry
}
