//! The handlers of pods and services, and the driver traits that they need.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use staffetta_driver::{
    LoadBalancerDriver, NoopPool, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver,
    ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver,
    VifPoolDriver,
};
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_network::lb::{LbDrivers, LbHandler};
use staffetta_network::lbaasspec::{LbaasSpecDrivers, LbaasSpecHandler};
use staffetta_network::vif::{VifDrivers, VifHandler};

/// Adds the driver traits, each with the driver that is used when the configuration names none.
pub(super) fn interfaces(registry: &mut Registry) {
    registry.interface::<dyn PodProjectDriver>("pod_project", "memory", "To which project a pod belongs.");
    registry.interface::<dyn PodSubnetsDriver>(
        "pod_subnets",
        "memory",
        "In which subnets a pod gets its addresses.",
    );
    registry.interface::<dyn PodSecurityGroupsDriver>(
        "pod_security_groups",
        "memory",
        "Which security groups guard a pod.",
    );
    registry.interface::<dyn PodVifDriver>("pod_vif", "memory", "Makes, activates and releases VIFs.");
    registry.interface::<dyn VifPoolDriver>(
        "vif_pool",
        "noop",
        "Keeps VIFs ready in front of the VIF driver.",
    );
    registry.interface::<dyn ServiceProjectDriver>(
        "service_project",
        "memory",
        "To which project a service belongs.",
    );
    registry.interface::<dyn ServiceSubnetsDriver>(
        "service_subnets",
        "memory",
        "In which subnet a service has its virtual address.",
    );
    registry.interface::<dyn ServiceSecurityGroupsDriver>(
        "service_security_groups",
        "memory",
        "Which security groups guard a load balancer.",
    );
    registry.interface::<dyn LoadBalancerDriver>(
        "endpoints_lbaas",
        "memory",
        "Makes and changes load balancers.",
    );
    registry.interface::<dyn ServicePublicIpDriver>(
        "service_public_ip",
        "memory",
        "Gives services public addresses.",
    );
    registry.driver::<dyn VifPoolDriver>("noop", "Keeps none: each pod asks the VIF driver.", |setup| {
        Ok(Arc::new(NoopPool::new(setup.driver::<dyn PodVifDriver>()?)))
    });
}

/// Adds the handlers.
pub(super) fn handlers(registry: &mut Registry) {
    registry.handler("vif", "Pods get VIFs.", vif);
    registry.handler("lbaasspec", "Services get the description of their load balancer.", lbaasspec);
    registry.handler("lb", "Services get load balancers, as they are described.", lb);
}

fn vif(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = VifDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
        pool: setup.driver()?,
    };
    Ok(VifHandler::new(setup.client(), drivers).registration().erase())
}

fn lbaasspec(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = LbaasSpecDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
    };
    Ok(LbaasSpecHandler::new(setup.client(), drivers).registration().erase())
}

fn lb(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = LbDrivers { load_balancer: setup.driver()?, public_ip: setup.driver()? };
    Ok(LbHandler::new(setup.client(), drivers).registration(setup.serves::<EndpointSlice>()).erase())
}
