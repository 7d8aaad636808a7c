//! Registers the drivers of OpenStack for services: load balancers in Octavia, and floating IPs.

use std::sync::Arc;

use staffetta_driver::{LoadBalancerDriver, ServicePublicIpDriver};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_network::lb::LoadBalancerOptions;
use staffetta_openstack::{LbaasV2Driver, MemberSubnets, NeutronFloatingIps, OctaviaDefaults};

use super::super::network::LOAD_BALANCERS;
use super::diagnosis::{declare_created, needs_extension, needs_quotas};
use super::{cloud, defaults, shared_namespaces, shared_subnets, unusable};
use crate::base::config::KubernetesOptions;

/// The value of `endpoints_driver_octavia_provider` that leaves the choice of the Octavia provider to the cloud.
const DEFAULT_PROVIDER: &str = "default";

/// The description of the driver `neutron_floating_ip`.
const FLOATING_IP: &str = "OpenStack: a floating IP of the external_svc_net of [neutron_defaults].";

/// Registers the drivers `lbaasv2` (load balancers) and `neutron_floating_ip` (public addresses), and their
/// section.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<OctaviaDefaults>("octavia_defaults");
    drivers! { registry, setup:
        dyn LoadBalancerDriver, "lbaasv2", "OpenStack: an Octavia load balancer for each service." => Arc::new(lbaasv2(setup)?);
        dyn ServicePublicIpDriver, "neutron_floating_ip", FLOATING_IP => {
            let defaults = defaults(setup)?;
            let (cloud, cluster) = (cloud(setup)?, setup.cluster_id()?.into());
            needs_extension(setup, &cloud, "router", "service_public_ip_driver = \"neutron_floating_ip\"");
            declare_created(setup, &["floatingip"])?;
            Arc::new(NeutronFloatingIps::new(&cloud, cluster, defaults.external_svc_net, defaults.external_svc_subnet))
        };
    }
}

/// Creates the driver `lbaasv2`, registers its readiness check of Octavia, and declares the resources that it creates, whose quotas are
/// checked.
fn lbaasv2(setup: &Setup) -> Result<LbaasV2Driver, SetupError> {
    let KubernetesOptions { endpoints_driver_octavia_provider: provider, .. } =
        setup.section("kubernetes")?;
    let options: OctaviaDefaults = setup.section("octavia_defaults")?;
    let members = MemberSubnets {
        mode: options.member_mode,
        pods: defaults(setup)?.pod_subnet,
        subnets: shared_subnets(setup)?,
        namespaces: shared_namespaces(setup)?,
    };
    let cloud = cloud(setup)?;
    // The virtual address of each load balancer is a port in the project.
    declare_created(setup, &["port", "loadbalancer", "listener", "pool", "member"])?;
    if setup.section::<LoadBalancerOptions>(LOAD_BALANCERS)?.health_monitor {
        declare_created(setup, &["healthmonitor"])?;
    }
    if let Some(project) = defaults(setup)?.project {
        let remedy = "compare `openstack loadbalancer quota show PROJECT` with what exists";
        let unknown = ("not known: the user may not read them", remedy);
        needs_quotas(setup, "octavia", cloud.load_balancer(), project, unknown)?;
    }
    let octavia = cloud.load_balancer();
    setup.check("octavia", move || {
        let octavia = octavia.clone();
        async move {
            let asked = octavia.version().await;
            asked.map(drop).map_err(|error| unusable(error).into())
        }
    });
    let provider = Some(provider).filter(|provider| !provider.is_empty() && provider != DEFAULT_PROVIDER);
    Ok(LbaasV2Driver::new(&cloud, setup.cluster_id()?.into(), members, &options, provider))
}
