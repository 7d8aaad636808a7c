//! All driver traits: option, default driver, and whether a dry run records the calls instead of making them.

use std::sync::Arc;

use staffetta_driver::app_hosting::AppHostingDrivers;
use staffetta_driver::{
    LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver, ServicePublicIpDriver,
    ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::Registry;
use staffetta_network::vif::networks::MultiVif;

use crate::dry_run::drivers::Recording;

/// The driver of a device that names none.
const APP_HOSTING: &str = if cfg!(feature = "iosxe") { "XE" } else { "FAKE" };

/// Registers one trait a line: `"option" = "default driver", dyn Trait, "description"`. A trait that changes external state also
/// has `recorded for "kind of the owner"`; the others are used as they are in a dry run.
macro_rules! driver_traits {
    ($registry:ident: $($option:literal = $default:expr, $driver:ty, $about:literal $(, recorded for $kind:literal)?;)+) => {
        $(driver_traits!(@ $registry.driver_trait::<$driver>($option, $default, $about), $option $(, $kind)?);)+
    };
    (@ $entry:expr, $option:literal) => { $entry.reads_only() };
    (@ $entry:expr, $option:literal, $kind:literal) => {
        $entry.recorded(|driver, plan| Arc::new(Recording::new(driver, plan, $option, $kind)))
    };
}

/// Registers all driver traits.
pub(super) fn register(registry: &mut Registry) {
    driver_traits! { registry:
        "pod_project" = "memory", dyn PodProjectDriver, "Chooses the project of a pod.";
        "pod_subnets" = "memory", dyn PodSubnetsDriver, "Chooses the subnets of a pod.";
        "pod_security_groups" = "memory", dyn PodSecurityGroupsDriver, "Chooses the security groups of a pod.";
        "pod_vif" = "memory", dyn PodVifDriver, "Creates, activates and releases VIFs.", recorded for "Pod";
        "vif_pool" = "noop", dyn VifPoolDriver, "Keeps VIFs of the VIF driver ready.", recorded for "Pod";
        "service_project" = "memory", dyn ServiceProjectDriver, "Chooses the project of a service.";
        "service_subnets" = "memory", dyn ServiceSubnetsDriver, "Chooses the subnet of a service's virtual address.";
        "service_security_groups" = "memory", dyn ServiceSecurityGroupsDriver, "Chooses the security groups of a load balancer.";
        "endpoints_lbaas" = "memory", dyn LoadBalancerDriver, "Creates and changes load balancers.", recorded for "Service";
        "service_public_ip" = "memory", dyn ServicePublicIpDriver, "Gives services public addresses.", recorded for "Service";
        "namespace_project" = "memory", dyn NamespaceProjectDriver, "Chooses the project of a namespace.";
        "namespace_subnet" = "memory", dyn NamespaceSubnetDriver, "Gives namespaces networks of their own.", recorded for "Namespace";
        "network_policy" = "memory", dyn NetworkPolicyDriver, "Implements network policies by security groups.", recorded for "NetworkPolicy";
        "multi_vif" = "noop", dyn MultiVif, "Chooses whether pods may have additional networks.";
        "app_hosting" = APP_HOSTING, dyn AppHostingDrivers, "Runs pods on the devices that name no driver of their own.", recorded for "Pod";
    }
}
