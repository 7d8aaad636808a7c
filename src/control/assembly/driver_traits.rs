//! Registers all driver traits: the option, the default driver, and whether a dry run records the calls instead of making them.

use std::sync::Arc;

use staffetta_driver::app_hosting::AppHostingDrivers;
use staffetta_driver::prefix::PrefixProvider;
use staffetta_driver::tunnel::Tunnel;
use staffetta_driver::{
    AdoptionDriver, LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver,
    PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver,
    ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::Registry;
use staffetta_network::vif::networks::MultiVifDriver;

use super::recording::Recording;

/// The default of `app_hosting_driver`: the driver of each device whose own configuration names none.
const APP_HOSTING: &str = if cfg!(feature = "iosxe") { "XE" } else { "FAKE" };

/// The default of `prefix_provider_driver`: the driver that assigns address prefixes to the network interfaces of nodes.
const PREFIX_PROVIDER: &str = if cfg!(feature = "ec2") { "ec2" } else { "memory" };

/// Returns the name of a default driver: `name`, which is a driver of OpenStack and named as in kuryr.conf, or `memory` in a program
/// without the drivers of OpenStack.
const fn real(name: &'static str) -> &'static str {
    if cfg!(feature = "openstack") { name } else { "memory" }
}

/// The default driver of most traits: the driver `default` of OpenStack, which uses the values of `[neutron_defaults]`, or `memory` in a
/// program without the drivers of OpenStack.
const DEFAULT: &str = real("default");

/// Registers one trait on each line: `"option" = "default driver", dyn Trait, "description"`. A trait that changes an external system
/// also has `recorded for "Kind"`, with the kind of the Kubernetes objects that own its resources: a dry run records the changes instead of
/// making them. A dry run calls the drivers of the other traits.
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

/// Registers all driver traits.
pub(super) fn register(registry: &mut Registry) {
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
        "app_hosting" = APP_HOSTING, dyn AppHostingDrivers, "Runs pods on the devices that name no driver of their own.", recorded for "Pod";
        "prefix_provider" = PREFIX_PROVIDER, dyn PrefixProvider, "Assigns prefixes to the network interfaces of nodes.", recorded for "Node";
    }
    // The handler `vnode` uses those that its options name. A dry run uses none.
    let about = "Reports bases, and starts and stops containers on them.";
    let tunnel = registry.driver_trait::<dyn Tunnel>("tunnel", "http", about);
    tunnel.has_option = false;
    tunnel.reads_only();
    // The command `migrate` shows its plan itself.
    registry.driver_trait::<dyn AdoptionDriver>(
        "adoption",
        real("openstack"),
        "Adopts what another controller created (`staffetta migrate`).",
    );
}
