//! Which handlers and drivers exist. An outside controller starts from [`registry`] and adds its own.

mod memory;
mod network;

use staffetta_handler::Registry;

use crate::config;

pub use memory::world;

/// Everything that ships.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.section::<config::Kubernetes>("kubernetes");
    registry.section::<config::Relay>("relay");
    registry.section::<config::Admin>("admin");
    registry.section::<config::Log>("log");
    registry.section::<config::Shutdown>("shutdown");
    network::interfaces(&mut registry);
    network::handlers(&mut registry);
    memory::drivers(&mut registry);
    registry
}
