//! All handlers and drivers of staffetta. A program with handlers or drivers of its own starts with [`registry`] and adds them.

/// Registers each driver of a list in `$registry`. Each entry has the form `dyn Trait, "name", "description" => constructor`. The
/// constructor is an expression for an `Arc<dyn Trait>`, which may use the `Setup` `$setup` and `?`.
macro_rules! drivers {
    ($registry:ident, $setup:ident: $($driver:ty, $name:literal, $about:expr => $constructor:expr;)+) => {
        $($registry.driver::<$driver>($name, $about, |$setup| Ok($constructor));)+
    };
}

pub(crate) mod cni;
mod driver_traits;
#[cfg(feature = "ec2")]
mod ec2;
mod family;
#[cfg(feature = "iosxe")]
mod iosxe;
#[cfg(feature = "koupleless")]
mod koupleless;
mod memory;
mod network;
#[cfg(feature = "openstack")]
mod openstack;
mod policy;
mod prefix_ip;
mod recording;
#[cfg(feature = "simulated")]
mod simulated;
mod unreachable;
mod vif_pool;
mod virtual_node;
mod vnode;

#[cfg(any(feature = "openstack", feature = "iosxe", feature = "ec2"))]
use staffetta_driver::Fence;
use staffetta_handler::{Registry, Setup, SetupError};

use crate::base::config::{self, KubernetesOptions};

pub use memory::world;
pub use prefix_ip::interfaces;
pub(crate) use vif_pool::pool_of;

/// Returns a registry with all handlers, drivers and configuration sections of staffetta.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    config::register(&mut registry);
    driver_traits::register(&mut registry);
    network::handlers(&mut registry);
    policy::register(&mut registry);
    cni::register(&mut registry);
    prefix_ip::register(&mut registry);
    #[cfg(feature = "ec2")]
    ec2::drivers(&mut registry);
    vif_pool::drivers(&mut registry);
    memory::drivers(&mut registry);
    #[cfg(feature = "openstack")]
    openstack::drivers(&mut registry);
    #[cfg(feature = "iosxe")]
    iosxe::drivers(&mut registry);
    virtual_node::handlers(&mut registry);
    vnode::handlers(&mut registry);
    #[cfg(feature = "koupleless")]
    koupleless::drivers(&mut registry);
    #[cfg(feature = "simulated")]
    simulated::drivers(&mut registry);
    registry
}

/// Returns the fence that all drivers share, which lets requests pass only during the leadership term. A command without a leader election
/// has no term, and its fence lets all requests pass.
#[cfg(any(feature = "openstack", feature = "iosxe", feature = "ec2"))]
fn fence(setup: &Setup) -> Result<Fence, SetupError> {
    setup.shared(|| Ok(Fence::default())).map(|fence| Fence::clone(&fence))
}

/// Returns `true` if the option `kubernetes.enabled_handlers` contains the handler `name`.
fn is_enabled(setup: &Setup, name: &str) -> Result<bool, SetupError> {
    let KubernetesOptions { enabled_handlers, .. } = setup.section("kubernetes")?;
    Ok(enabled_handlers.iter().any(|enabled| enabled == name))
}
