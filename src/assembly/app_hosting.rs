//! The driver trait of devices that host pods, and the devices that exist in this process only.

use std::sync::Arc;

use staffetta_driver::app_hosting::AppHostingDrivers;
use staffetta_driver::memory::MemoryDevices;
use staffetta_driver::rehearsal::RehearsedAppHostingDrivers;
use staffetta_handler::Registry;

use super::rehearsal::planner;

/// The kind of a device that names none.
const DEFAULT: &str = if cfg!(feature = "iosxe") { "XE" } else { "FAKE" };

/// Adds the driver trait, with what a dry run makes of it, and the driver `FAKE`. Which one a device gets is said where the
/// device is described.
pub(super) fn drivers(registry: &mut Registry) {
    const ABOUT: &str = "Runs pods on the devices that name no driver of their own.";
    registry.interface::<dyn AppHostingDrivers>("app_hosting", DEFAULT, ABOUT).rehearsed(|inner, plan| {
        Arc::new(RehearsedAppHostingDrivers::new(inner, planner(plan, "app_hosting", "Pod")))
    });
    let devices = MemoryDevices::default();
    registry.driver::<dyn AppHostingDrivers>("FAKE", "Simulated, within the process.", move |setup| {
        Ok(Arc::new(devices.of_cluster(setup.cluster_id()?.into())))
    });
}
