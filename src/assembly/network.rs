//! The handlers of pods and services, and the driver traits that they need.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use staffetta_driver::rehearsal::{
    RehearsedLoadBalancerDriver, RehearsedNamespaceSubnets, RehearsedPublicIpDriver, RehearsedVifDriver,
    RehearsedVifPool,
};
use staffetta_driver::{
    LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver, ServicePublicIpDriver,
    ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_network::lb::{LbDrivers, LbHandler, LoadBalancerOptions};
use staffetta_network::lbaasspec::{LbaasSpecDrivers, LbaasSpecHandler};
use staffetta_network::namespace::{NamespaceDrivers, NamespaceHandler};
use staffetta_network::vif::networks::MultiVif;
use staffetta_network::vif::{VifDrivers, VifHandler};

use super::rehearsal::planner;
use super::virtual_node;

/// The section of the handler `lb`.
const LOAD_BALANCERS: &str = "load_balancers";

/// Adds the driver traits, each with the driver that is used when the configuration names none, and with what a dry run
/// makes of it.
pub(super) fn interfaces(registry: &mut Registry) {
    pods(registry);
    services(registry);
    namespaces(registry);
}

fn pods(registry: &mut Registry) {
    const PROJECT: &str = "To which project a pod belongs.";
    const SUBNETS: &str = "In which subnets a pod gets its addresses.";
    const GROUPS: &str = "Which security groups guard a pod.";
    const VIF: &str = "Makes, activates and releases VIFs.";
    const POOL: &str = "Keeps VIFs ready in front of the VIF driver.";
    registry.interface::<dyn PodProjectDriver>("pod_project", "memory", PROJECT).reads_only();
    registry.interface::<dyn PodSubnetsDriver>("pod_subnets", "memory", SUBNETS).reads_only();
    registry.interface::<dyn PodSecurityGroupsDriver>("pod_security_groups", "memory", GROUPS).reads_only();
    registry
        .interface::<dyn PodVifDriver>("pod_vif", "memory", VIF)
        .rehearsed(|inner, plan| Arc::new(RehearsedVifDriver::new(inner, planner(plan, "pod_vif", "Pod"))));
    registry
        .interface::<dyn VifPoolDriver>("vif_pool", "noop", POOL)
        .rehearsed(|inner, plan| Arc::new(RehearsedVifPool::new(inner, planner(plan, "vif_pool", "Pod"))));
}

fn services(registry: &mut Registry) {
    const PROJECT: &str = "To which project a service belongs.";
    const SUBNETS: &str = "In which subnet a service has its virtual address.";
    const GROUPS: &str = "Which security groups guard a load balancer.";
    const LBAAS: &str = "Makes and changes load balancers.";
    const PUBLIC: &str = "Gives services public addresses.";
    registry.interface::<dyn ServiceProjectDriver>("service_project", "memory", PROJECT).reads_only();
    registry.interface::<dyn ServiceSubnetsDriver>("service_subnets", "memory", SUBNETS).reads_only();
    registry
        .interface::<dyn ServiceSecurityGroupsDriver>("service_security_groups", "memory", GROUPS)
        .reads_only();
    registry.interface::<dyn LoadBalancerDriver>("endpoints_lbaas", "memory", LBAAS).rehearsed(
        |inner, plan| {
            Arc::new(RehearsedLoadBalancerDriver::new(inner, planner(plan, "endpoints_lbaas", "Service")))
        },
    );
    registry.interface::<dyn ServicePublicIpDriver>("service_public_ip", "memory", PUBLIC).rehearsed(
        |inner, plan| {
            Arc::new(RehearsedPublicIpDriver::new(inner, planner(plan, "service_public_ip", "Service")))
        },
    );
}

fn namespaces(registry: &mut Registry) {
    const PROJECT: &str = "To which project a namespace belongs.";
    const SUBNET: &str = "Gives namespaces networks of their own.";
    registry.interface::<dyn NamespaceProjectDriver>("namespace_project", "memory", PROJECT).reads_only();
    registry.interface::<dyn NamespaceSubnetDriver>("namespace_subnet", "memory", SUBNET).rehearsed(
        |inner, plan| {
            Arc::new(RehearsedNamespaceSubnets::new(inner, planner(plan, "namespace_subnet", "Namespace")))
        },
    );
}

/// Adds the handlers.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<LoadBalancerOptions>(LOAD_BALANCERS);
    registry.handler("vif", "Pods get VIFs.", vif);
    registry.handler("lbaasspec", "Services get the description of their load balancer.", lbaasspec);
    registry.handler("lb", "Services get load balancers, as they are described.", lb);
    registry.handler("namespace", "Namespaces get networks of their own.", namespace);
}

fn vif(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = VifDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
        pool: setup.driver()?,
        further: setup.driver::<dyn MultiVif>()?.further(),
    };
    let handler = VifHandler::new(setup.client(), drivers);
    let handler = if virtual_node::are_kept(setup)? { handler.beside_virtual_nodes() } else { handler };
    Ok(handler.registration().erase())
}

fn lbaasspec(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = LbaasSpecDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
    };
    let handler = LbaasSpecHandler::new(setup.client(), drivers).telling(setup.notes());
    Ok(handler.registration().erase())
}

fn lb(setup: &Setup) -> Result<Registration, SetupError> {
    let options: LoadBalancerOptions = setup.section(LOAD_BALANCERS)?;
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction));
    }
    let drivers = LbDrivers { load_balancer: setup.driver()?, public_ip: setup.driver()? };
    let handler = LbHandler::new(setup.client(), drivers).options(options).telling(setup.notes());
    Ok(handler.registration(setup.serves::<EndpointSlice>()).erase())
}

fn namespace(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = NamespaceDrivers { project: setup.driver()?, subnet: setup.driver()? };
    Ok(NamespaceHandler::new(setup.client(), drivers).registration().erase())
}
