//! All handlers and drivers of staffetta. A program with handlers or drivers of its own starts with [`registry`] and adds them.

/// Registers each driver of a list in `$registry`. Each entry has the form `dyn Trait, "name", "description" => constructor`. The
/// constructor is an expression for an `Arc<dyn Trait>`, which may use the `Setup` `$setup` and `?`.
macro_rules! drivers {
    ($registry:ident, $setup:ident: $($driver:ty, $name:literal, $about:expr => $constructor:expr;)+) => {
        $($registry.driver::<$driver>($name, $about, |$setup| Ok($constructor));)+
    };
}

#[cfg(feature = "app-hosting")]
mod app_hosting;
#[cfg(feature = "cni")]
pub(crate) mod cni;
mod driver_traits;
#[cfg(feature = "ec2")]
mod ec2;
#[cfg(any(feature = "memory", feature = "openstack", feature = "ec2"))]
mod family;
#[cfg(feature = "iosxe")]
mod iosxe;
#[cfg(feature = "koupleless")]
mod koupleless;
#[cfg(all(feature = "memory", feature = "network"))]
mod memory;
#[cfg(feature = "network")]
mod network;
#[cfg(feature = "openstack")]
mod openstack;
#[cfg(feature = "policy")]
mod policy;
#[cfg(feature = "prefix-ip")]
mod prefix_ip;
#[cfg(any(feature = "network", feature = "prefix-ip", feature = "app-hosting"))]
mod recording;
#[cfg(feature = "simulated")]
mod simulated;
#[cfg(any(
    feature = "vnode",
    feature = "cni",
    feature = "openstack",
    feature = "iosxe",
    feature = "ec2",
    feature = "simulated"
))]
mod unreachable;
#[cfg(feature = "network")]
mod vif_pool;
#[cfg(feature = "virtual-nodes")]
mod virtual_node;
#[cfg(feature = "vnode")]
mod vnode;

#[cfg(any(feature = "openstack", feature = "iosxe", feature = "ec2"))]
use staffetta_driver::Fence;
use staffetta_handler::{Registry, Setup, SetupError};

use crate::base::config::{self, KubernetesOptions};

#[cfg(all(feature = "memory", feature = "network"))]
pub use memory::world;
#[cfg(all(feature = "memory", feature = "prefix-ip"))]
pub use prefix_ip::interfaces;
#[cfg(feature = "network")]
pub use vif_pool::pooled;
#[cfg(feature = "network")]
pub(crate) use vif_pool::with_pools;

/// Returns a registry with all handlers, drivers and configuration sections of staffetta.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    config::register(&mut registry);
    driver_traits::register(&mut registry);
    #[cfg(feature = "network")]
    network::handlers(&mut registry);
    #[cfg(feature = "policy")]
    policy::register(&mut registry);
    #[cfg(feature = "cni")]
    cni::register(&mut registry);
    #[cfg(feature = "prefix-ip")]
    prefix_ip::register(&mut registry);
    #[cfg(feature = "ec2")]
    ec2::drivers(&mut registry);
    #[cfg(feature = "network")]
    vif_pool::drivers(&mut registry);
    #[cfg(feature = "memory")]
    registry.section::<staffetta_memory::MemoryOptions>("memory");
    #[cfg(all(feature = "memory", feature = "network"))]
    memory::drivers(&mut registry);
    #[cfg(feature = "openstack")]
    openstack::drivers(&mut registry);
    #[cfg(feature = "iosxe")]
    iosxe::drivers(&mut registry);
    #[cfg(feature = "app-hosting")]
    app_hosting::register(&mut registry);
    #[cfg(feature = "vnode")]
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
