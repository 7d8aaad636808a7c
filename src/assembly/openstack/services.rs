//! The drivers of OpenStack for services: load balancers in Octavia, and floating IPs.

use std::sync::Arc;

use serde::Deserialize;
use staffetta_driver::{DriverError, LoadBalancerDriver, ServicePublicIpDriver};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_openstack::{LbaasV2Driver, MemberSubnets, NeutronFloatingIps, OctaviaDefaults};

use super::{Unreachable, cloud, defaults, known_namespaces, known_subnets, required};

/// The provider that means that the cloud chooses.
const ANY: &str = "default";

/// Adds the drivers.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<OctaviaDefaults>("octavia_defaults");
    registry.driver::<dyn LoadBalancerDriver>(
        "lbaasv2",
        "OpenStack: a load balancer of Octavia for each service.",
        |setup| Ok(Arc::new(lbaasv2(setup)?)),
    );
    registry.driver::<dyn ServicePublicIpDriver>(
        "neutron_floating_ip",
        "OpenStack: a floating IP of the external_svc_net of [neutron_defaults].",
        |setup| {
            let defaults = defaults(setup)?;
            let pool = required(defaults.external_svc_net, "neutron_defaults.external_svc_net")?;
            let (cloud, cluster) = (cloud(setup)?, setup.cluster_id()?.into());
            Ok(Arc::new(NeutronFloatingIps::new(&cloud, cluster, pool, defaults.external_svc_subnet)))
        },
    );
}

fn lbaasv2(setup: &Setup) -> Result<LbaasV2Driver, SetupError> {
    /// What of the section `[kubernetes]` concerns load balancers.
    #[derive(Deserialize)]
    struct Kubernetes {
        #[serde(default)]
        endpoints_driver_octavia_provider: String,
    }
    let Kubernetes { endpoints_driver_octavia_provider: provider } = setup.section("kubernetes")?;
    let options: OctaviaDefaults = setup.section("octavia_defaults")?;
    let members = MemberSubnets {
        mode: options.member_mode,
        pods: defaults(setup)?.pod_subnet,
        subnets: known_subnets(setup)?,
        namespaces: known_namespaces(setup)?,
    };
    let cloud = cloud(setup)?;
    let octavia = cloud.load_balancer();
    setup.check("octavia", move || {
        let octavia = octavia.clone();
        async move {
            let asked = octavia.version().await;
            asked.map(drop).map_err(|error| Unreachable(DriverError::from(error)).into())
        }
    });
    let provider = Some(provider).filter(|provider| !provider.is_empty() && provider != ANY);
    Ok(LbaasV2Driver::new(&cloud, setup.cluster_id()?.into(), members, &options, provider))
}
