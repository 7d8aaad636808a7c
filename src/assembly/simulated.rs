//! The drivers named `simulated`: a simulated world in a process of its own, which outlives the controller.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{
    DriverError, LoadBalancerDriver, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver,
    PodVifDriver, ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Failure, Registry, Setup, SetupError};
use staffetta_simulated::{Client, SimulatedDriver, SimulatedOptions};
use tracing::warn;

/// Adds the drivers named `simulated`, in the network that the section `[simulated]` names.
pub(super) fn drivers(registry: &mut Registry) {
    const ABOUT: &str = "Simulated, by a process of its own.";
    registry.section::<SimulatedOptions>("simulated");
    registry.driver::<dyn PodProjectDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn PodSubnetsDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn PodSecurityGroupsDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn PodVifDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn VifPoolDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn ServiceProjectDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn ServiceSubnetsDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn ServiceSecurityGroupsDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn LoadBalancerDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
    registry.driver::<dyn ServicePublicIpDriver>("simulated", ABOUT, |setup| Ok(driver(setup)?));
}

/// All drivers share one, and with it its connections.
fn driver(setup: &Setup) -> Result<Arc<SimulatedDriver>, SetupError> {
    setup.shared(|| {
        warn!("simulated drivers are in use: what they write on objects leads nowhere");
        let options: SimulatedOptions = setup.section("simulated")?;
        let client = Client::new(&options).map_err(|error| SetupError::Invalid(error.to_string()))?;
        let cluster = setup.cluster_id()?.into();
        let driver = client.driver(cluster);
        setup.check("simulated", move || {
            let client = client.clone();
            async move { client.check().await.map_err(|error| Unreachable(error).into()) }
        });
        Ok(driver)
    })
}

/// The network of the section `[simulated]` does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the simulated network of `simulated.url` does not answer")]
struct Unreachable(#[source] DriverError);

impl Failure for Unreachable {
    fn transient(&self) -> bool {
        self.0.transient()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}
