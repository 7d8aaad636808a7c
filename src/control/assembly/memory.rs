//! Registers the drivers named `memory`: a simulated cloud within the process, for the devstack and tests.

use std::sync::{Arc, OnceLock};

use staffetta_driver::{
    AdoptionDriver, LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver,
    PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver,
    ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_memory::{
    MemoryAdoption, MemoryBulkVifDriver, MemoryLoadBalancerDriver, MemoryNamespaceSubnets, MemoryNetwork,
    MemoryNetworkPolicyDriver, MemoryOptions, MemoryPublicIpDriver, MemoryServices, MemoryVifDriver,
};
use tracing::warn;

use super::family::DriverFamily;
use super::vif_pool;

/// Registers the drivers named `memory` on a simulated cloud that the section `[memory]` describes.
pub(super) fn drivers(registry: &mut Registry) {
    register(registry, &MemoryCloud::default());
}

/// Registers the drivers named `memory` on the simulated cloud that consists of `network` and `services`, which the caller can inspect and
/// change. Makes them the default drivers, except for that of the VIF pool.
pub fn world(registry: &mut Registry, network: &Arc<MemoryNetwork>, services: &Arc<MemoryServices>) {
    let parts = (Arc::clone(network), Arc::clone(services));
    register(registry, &MemoryCloud(Arc::new(parts.into())));
}

/// The simulated cloud of all drivers, which outlives a leadership term as a real one does: that of the caller, or one that is created
/// from the section `[memory]` when a driver needs it.
#[derive(Clone, Default)]
struct MemoryCloud(Arc<OnceLock<(Arc<MemoryNetwork>, Arc<MemoryServices>)>>);

impl MemoryCloud {
    /// Returns the simulated networks and ports.
    fn network(&self, setup: &Setup) -> Result<Arc<MemoryNetwork>, SetupError> {
        self.parts(setup).map(|(network, _)| Arc::clone(network))
    }

    /// Returns the simulated load balancers and public addresses.
    fn services(&self, setup: &Setup) -> Result<Arc<MemoryServices>, SetupError> {
        self.parts(setup).map(|(_, services)| Arc::clone(services))
    }

    /// Returns both parts of the simulated cloud, which the first call creates from the section `[memory]` unless the caller gave them.
    fn parts(&self, setup: &Setup) -> Result<&(Arc<MemoryNetwork>, Arc<MemoryServices>), SetupError> {
        DriverFamily::Simulated.select(setup)?;
        let options: MemoryOptions = setup.section("memory")?;
        Ok(self.0.get_or_init(|| {
            warn!("simulated drivers are in use: the VIFs and load balancers on objects do not exist");
            (MemoryNetwork::new(options.clone()).into(), MemoryServices::new(options).into())
        }))
    }
}

/// Registers one driver `memory` on each line: `dyn Trait => constructor`. The constructor may use the cloud and the setup. If the cloud is
/// that of the caller, `memory` becomes the default driver of the trait.
macro_rules! memory_drivers {
    ($registry:ident, $cloud:ident, $setup:ident: $($driver:ty => $constructor:expr;)+) => {$({
        let is_given = $cloud.0.get().is_some();
        let $cloud = $cloud.clone();
        let create = move |$setup: &Setup| -> Result<Arc<$driver>, SetupError> { Ok($constructor) };
        $registry.driver::<$driver>("memory", "Simulated, within the process.", create);
        if is_given {
            "memory".clone_into(&mut $registry.driver_trait_mut::<$driver>().default);
        }
    })+};
}

/// Registers the driver `memory` for each trait that the simulated cloud implements. All of them share one network and one set of services.
fn register(registry: &mut Registry, cloud: &MemoryCloud) {
    memory_drivers! { registry, cloud, setup:
        dyn AdoptionDriver =>
            Arc::new(MemoryAdoption::new(cloud.network(setup)?, cloud.services(setup)?, setup.cluster_id()?.into()));
        dyn PodProjectDriver => cloud.network(setup)?;
        dyn PodSubnetsDriver => cloud.network(setup)?;
        dyn PodSecurityGroupsDriver => cloud.network(setup)?;
        dyn NamespaceProjectDriver => cloud.network(setup)?;
        dyn PodVifDriver => Arc::new(MemoryVifDriver::new(cloud.network(setup)?, setup.cluster_id()?.into()));
        dyn NetworkPolicyDriver => Arc::new(MemoryNetworkPolicyDriver::new(cloud.network(setup)?, setup.cluster_id()?.into()));
        dyn ServiceProjectDriver => cloud.services(setup)?;
        dyn ServiceSubnetsDriver => cloud.services(setup)?;
        dyn ServiceSecurityGroupsDriver => cloud.services(setup)?;
        dyn LoadBalancerDriver => Arc::new(MemoryLoadBalancerDriver::new(cloud.services(setup)?, setup.cluster_id()?.into()));
        dyn NamespaceSubnetDriver => Arc::new(MemoryNamespaceSubnets::new(cloud.network(setup)?, setup.cluster_id()?.into()));
        dyn ServicePublicIpDriver => Arc::new(MemoryPublicIpDriver::new(cloud.services(setup)?, setup.cluster_id()?.into()));
    }
    let cloud = cloud.clone();
    registry.driver::<dyn VifPoolDriver>(
        "memory",
        "Keeps VIFs of the driver `memory` ready.",
        move |setup| {
            let bulk = MemoryBulkVifDriver::new(cloud.network(setup)?, setup.cluster_id()?.into());
            vif_pool::pooled(setup, "memory", Arc::new(bulk))
        },
    );
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_simulated_cloud_outlives_a_leadership_term() {
        let registry = Arc::new(crate::control::assembly::registry());
        let cloud = MemoryCloud::default();
        let network = || {
            let (service, _) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
            let setup = registry.setup(Client::new(service, "default"), json!({}), None);
            cloud.network(&setup).unwrap()
        };
        assert!(Arc::ptr_eq(&network(), &network()));
    }
}
