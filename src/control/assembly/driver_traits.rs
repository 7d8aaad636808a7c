//! Registers all driver traits: the option, the default driver, and whether a dry run records the calls instead of making them.

#[cfg(any(feature = "network", feature = "prefix-ip", feature = "app-hosting"))]
use std::sync::Arc;

use staffetta_handler::Registry;

#[cfg(any(feature = "network", feature = "prefix-ip", feature = "app-hosting"))]
use super::recording::Recording;

/// Returns the name of a default driver: `name`, which is a driver of OpenStack and named as in kuryr.conf, or `memory` in a program
/// without the drivers of OpenStack.
#[cfg(feature = "network")]
const fn real(name: &'static str) -> &'static str {
    if cfg!(feature = "openstack") { name } else { "memory" }
}

/// Registers one trait on each line: `"option" = "default driver", dyn Trait, "description"`. A trait that changes an external system
/// also has `recorded for "Kind"`, with the kind of the Kubernetes objects that own its resources: a dry run records the changes instead of
/// making them. A dry run calls the drivers of the other traits.
#[cfg(any(feature = "network", feature = "prefix-ip", feature = "app-hosting"))]
macro_rules! driver_traits {
    ($registry:ident: $($option:literal = $default:expr, $driver:ty, $about:literal $(, recorded for $kind:literal)?;)+) => {
        $(
            $registry.driver_trait::<$driver>($option, $default, $about);
            driver_traits!(@ $registry, $driver, $option $(, $kind)?);
        )+
    };
    (@ $registry:ident, $driver:ty, $option:literal) => { $registry.driver_trait_mut::<$driver>().reads_only() };
    (@ $registry:ident, $driver:ty, $option:literal, $kind:literal) => {
        $registry.recorded::<$driver>(|driver, plan| Arc::new(Recording::new(driver, plan, $option, $kind)))
    };
}

/// Registers the driver traits of all handlers that the program has.
pub(super) fn register(registry: &mut Registry) {
    #[cfg(feature = "network")]
    network(registry);
    #[cfg(feature = "app-hosting")]
    app_hosting(registry);
    #[cfg(feature = "prefix-ip")]
    prefix_ip(registry);
    #[cfg(feature = "vnode")]
    vnode(registry);
    #[cfg(feature = "network")]
    adoption(registry);
}

/// Registers the driver traits of pods, services, namespaces and network policies.
#[cfg(feature = "network")]
fn network(registry: &mut Registry) {
    use staffetta_driver::{
        LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver,
        PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver,
        ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
    };
    use staffetta_network::vif::networks::MultiVifDriver;

    /// The default driver of most traits: the driver `default` of OpenStack, which uses the values of `[neutron_defaults]`, or `memory` in
    /// a program without the drivers of OpenStack.
    const DEFAULT: &str = real("default");

    driver_traits! { registry:
        "pod_project" = DEFAULT, dyn PodProjectDriver, "Chooses the project of a pod.";
        "pod_subnets" = DEFAULT, dyn PodSubnetsDriver, "Chooses the subnets of a pod.";
        "pod_security_groups" = DEFAULT, dyn PodSecurityGroupsDriver, "Chooses the security groups of a pod.";
        "pod_vif" = real("neutron-vif"), dyn PodVifDriver, "Creates, activates and releases VIFs.", recorded for "Pod";
        "vif_pool" = "noop", dyn VifPoolDriver, "Keeps VIFs of the VIF driver ready.", recorded for "Pod";
        "service_project" = DEFAULT, dyn ServiceProjectDriver, "Chooses the project of a service.";
        "service_subnets" = DEFAULT, dyn ServiceSubnetsDriver, "Chooses the subnet of a service's virtual address.";
        "service_security_groups" = DEFAULT, dyn ServiceSecurityGroupsDriver, "Chooses the security groups of a load balancer.";
        "endpoints_lbaas" = real("lbaasv2"), dyn LoadBalancerDriver, "Creates and changes load balancers.", recorded for "Service";
        "service_public_ip" = real("neutron_floating_ip"), dyn ServicePublicIpDriver, "Gives services public addresses.", recorded for "Service";
        "namespace_project" = DEFAULT, dyn NamespaceProjectDriver, "Chooses the project of a namespace.";
        "namespace_subnet" = real("namespace"), dyn NamespaceSubnetDriver, "Gives namespaces networks of their own.", recorded for "Namespace";
        "network_policy" = DEFAULT, dyn NetworkPolicyDriver, "Implements network policies by security groups.", recorded for "NetworkPolicy";
        "multi_vif" = "noop", dyn MultiVifDriver, "Chooses whether pods may have additional networks.";
    }
}

/// Registers the driver trait of the handler `app_hosting`. Its default is the driver of each device whose own configuration names none.
#[cfg(feature = "app-hosting")]
fn app_hosting(registry: &mut Registry) {
    use staffetta_driver::app_hosting::AppHostingDrivers;

    const DEFAULT: &str = if cfg!(feature = "iosxe") { "XE" } else { "FAKE" };

    driver_traits! { registry:
        "app_hosting" = DEFAULT, dyn AppHostingDrivers, "Runs pods on the devices that name no driver of their own.", recorded for "Pod";
    }
}

/// Registers the driver trait of the handler `prefix_ip`. Its default assigns address prefixes to the network interfaces of nodes.
#[cfg(feature = "prefix-ip")]
fn prefix_ip(registry: &mut Registry) {
    use staffetta_driver::prefix::PrefixProvider;

    const DEFAULT: &str = if cfg!(feature = "ec2") { "ec2" } else { "memory" };

    driver_traits! { registry:
        "prefix_provider" = DEFAULT, dyn PrefixProvider, "Assigns prefixes to the network interfaces of nodes.", recorded for "Node";
    }
}

/// Registers the driver trait of the handler `vnode`, which uses those that its options name. A dry run uses none.
#[cfg(feature = "vnode")]
fn vnode(registry: &mut Registry) {
    use staffetta_driver::tunnel::Tunnel;

    let about = "Reports bases, and starts and stops containers on them.";
    let tunnel = registry.driver_trait::<dyn Tunnel>("tunnel", "http", about);
    tunnel.has_option = false;
    tunnel.reads_only();
}

/// Registers the driver trait of the command `migrate`, which shows its plan itself.
#[cfg(feature = "network")]
fn adoption(registry: &mut Registry) {
    registry.driver_trait::<dyn staffetta_driver::AdoptionDriver>(
        "adoption",
        real("openstack"),
        "Adopts what another controller created (`staffetta migrate`).",
    );
}
