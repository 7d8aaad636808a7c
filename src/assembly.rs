//! The handlers and drivers that ship. An external controller starts from [`registry`] and adds its own.

/// Registers one driver for each entry, `dyn Trait, "name", "description" => constructor`. A constructor may use the setup and `?`.
macro_rules! drivers {
    ($registry:ident, $setup:ident: $($driver:ty, $name:literal, $about:expr => $constructor:expr;)+) => {
        $($registry.driver::<$driver>($name, $about, |$setup| Ok($constructor));)+
    };
}

mod driver_traits;
#[cfg(feature = "iosxe")]
mod iosxe;
mod memory;
mod network;
#[cfg(feature = "openstack")]
mod openstack;
mod policy;
#[cfg(feature = "simulated")]
mod simulated;
#[cfg(any(feature = "openstack", feature = "simulated"))]
mod unreachable;
mod vif_pool;
mod virtual_node;

use staffetta_handler::{Registry, Setup, SetupError};

use crate::config::{self, KubernetesOptions};

pub use memory::world;

/// All handlers and drivers that ship.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    config::register(&mut registry);
    driver_traits::register(&mut registry);
    network::handlers(&mut registry);
    policy::register(&mut registry);
    vif_pool::drivers(&mut registry);
    memory::drivers(&mut registry);
    #[cfg(feature = "openstack")]
    openstack::drivers(&mut registry);
    #[cfg(feature = "iosxe")]
    iosxe::drivers(&mut registry);
    virtual_node::handlers(&mut registry);
    #[cfg(feature = "simulated")]
    simulated::drivers(&mut registry);
    registry
}

/// Returns `true` if the handler `name` is enabled.
fn is_enabled(setup: &Setup, name: &str) -> Result<bool, SetupError> {
    let KubernetesOptions { enabled_handlers, .. } = setup.section("kubernetes")?;
    Ok(enabled_handlers.iter().any(|enabled| enabled == name))
}
