//! Registers the drivers named `simulated`: a simulated cloud in another process, which continues to run when the controller stops.

use std::sync::Arc;

use staffetta_driver::{
    LoadBalancerDriver, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, PodVifDriver,
    ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver,
    VifPoolDriver,
};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_memory::http::{Client, SimulatedDriver, SimulatedOptions};
use tracing::warn;

use super::family::DriverFamily;
use super::unreachable::Unreachable;

/// The error message when the process of the simulated cloud does not respond.
const UNREACHABLE: &str = "the simulated cloud at `simulated.url` does not answer";

/// Registers the drivers named `simulated` and the section `[simulated]`.
pub(super) fn drivers(registry: &mut Registry) {
    macro_rules! simulated_drivers {
        ($($driver:ident)+) => {
            $(registry.driver::<dyn $driver>("simulated", "Simulated, by another process.", |setup| Ok(driver(setup)?));)+
        };
    }
    registry.section::<SimulatedOptions>("simulated");
    simulated_drivers! {
        PodProjectDriver PodSubnetsDriver PodSecurityGroupsDriver PodVifDriver VifPoolDriver ServiceProjectDriver
        ServiceSubnetsDriver ServiceSecurityGroupsDriver LoadBalancerDriver ServicePublicIpDriver
    }
}

/// Returns the driver `simulated`, one value for all driver traits, and adds a readiness check of the connection to the simulated cloud.
fn driver(setup: &Setup) -> Result<Arc<SimulatedDriver>, SetupError> {
    DriverFamily::Simulated.select(setup)?;
    setup.shared(|| {
        warn!("simulated drivers are in use: the VIFs and load balancers on objects do not exist");
        let options: SimulatedOptions = setup.section("simulated")?;
        let client = Client::new(&options).map_err(|error| SetupError::Invalid(error.to_string()))?;
        let cluster = setup.cluster_id()?.into();
        let driver = client.driver(cluster);
        setup.check("simulated", move || {
            let client = client.clone();
            async move { client.check().await.map_err(|error| Unreachable::new(UNREACHABLE, error).into()) }
        });
        Ok(driver)
    })
}
