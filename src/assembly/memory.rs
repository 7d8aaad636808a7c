//! The drivers named `memory`: a simulated world, for the first five minutes and for tests.

use std::sync::Arc;

use staffetta_driver::memory::{
    MemoryLoadBalancerDriver, MemoryNamespaceProject, MemoryNamespaceSubnets, MemoryNetwork,
    MemoryNetworkPolicyDriver, MemoryOptions, MemoryPodProject, MemoryPodSecurityGroups, MemoryPodSubnets,
    MemoryPublicIpDriver, MemoryServiceProject, MemoryServiceSecurityGroups, MemoryServiceSubnets,
    MemoryServices, MemoryVifDriver, MemoryVifStock,
};
use staffetta_driver::{
    LoadBalancerDriver, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver, ServiceProjectDriver, ServicePublicIpDriver,
    ServiceSecurityGroupsDriver, ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Registry, Setup, SetupError};
use tracing::warn;

use super::vif_pool;

/// Adds the drivers named `memory`, on a world that the section `[memory]` describes.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<MemoryOptions>("memory");
    register(
        registry,
        |setup| setup.shared(|| simulated(setup).map(MemoryNetwork::new)),
        |setup| setup.shared(|| simulated(setup).map(MemoryServices::new)),
    );
}

fn simulated(setup: &Setup) -> Result<MemoryOptions, SetupError> {
    warn!("simulated drivers are in use: what they write on objects leads nowhere");
    setup.section("memory")
}

/// Puts the drivers named `memory` on a world that the caller holds, to look into it or to change it meanwhile.
pub fn world(registry: &mut Registry, network: &Arc<MemoryNetwork>, services: &Arc<MemoryServices>) {
    let (network, services) = (Arc::clone(network), Arc::clone(services));
    register(registry, move |_| Ok(Arc::clone(&network)), move |_| Ok(Arc::clone(&services)));
}

fn register(
    registry: &mut Registry,
    network: impl Fn(&Setup) -> Result<Arc<MemoryNetwork>, SetupError> + Clone + Send + Sync + 'static,
    services: impl Fn(&Setup) -> Result<Arc<MemoryServices>, SetupError> + Clone + Send + Sync + 'static,
) {
    const ABOUT: &str = "Simulated, within the process.";
    const POOL: &str = "Keeps VIFs of the driver `memory` ready.";
    let world = network.clone();
    registry.driver::<dyn PodProjectDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryPodProject(world(setup)?)))
    });
    let world = network.clone();
    registry.driver::<dyn PodSubnetsDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryPodSubnets(world(setup)?)))
    });
    let world = network.clone();
    registry.driver::<dyn PodSecurityGroupsDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryPodSecurityGroups(world(setup)?)))
    });
    let world = network.clone();
    registry.driver::<dyn NamespaceProjectDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryNamespaceProject(world(setup)?)))
    });
    registry.driver::<dyn NamespaceSubnetDriver>("memory", ABOUT, |_| {
        Ok(Arc::new(MemoryNamespaceSubnets::default()))
    });
    let world = network.clone();
    registry.driver::<dyn PodVifDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryVifDriver::new(world(setup)?, setup.cluster_id()?.into())))
    });
    let world = network.clone();
    registry.driver::<dyn NetworkPolicyDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryNetworkPolicyDriver::new(world(setup)?, setup.cluster_id()?.into())))
    });
    registry.driver::<dyn VifPoolDriver>("memory", POOL, move |setup| {
        let stock = MemoryVifStock::new(network(setup)?, setup.cluster_id()?.into());
        vif_pool::pooled(setup, "memory", Arc::new(stock))
    });
    let world = services.clone();
    registry.driver::<dyn ServiceProjectDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryServiceProject(world(setup)?)))
    });
    let world = services.clone();
    registry.driver::<dyn ServiceSubnetsDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryServiceSubnets(world(setup)?)))
    });
    let world = services.clone();
    registry.driver::<dyn ServiceSecurityGroupsDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryServiceSecurityGroups(world(setup)?)))
    });
    let world = services.clone();
    registry.driver::<dyn LoadBalancerDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryLoadBalancerDriver::new(world(setup)?, setup.cluster_id()?.into())))
    });
    registry.driver::<dyn ServicePublicIpDriver>("memory", ABOUT, move |setup| {
        Ok(Arc::new(MemoryPublicIpDriver::new(services(setup)?, setup.cluster_id()?.into())))
    });
}
