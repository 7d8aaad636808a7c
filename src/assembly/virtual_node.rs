//! Registers the handler of virtual nodes, and the driver `FAKE`, which simulates devices within this process.

use std::sync::Arc;

use staffetta_driver::app_hosting::{AppHostingDriverTable, AppHostingDrivers};
use staffetta_handler::{Registration, Registry, Setup, SetupError, causes};
use staffetta_memory::MemoryDevices;
use staffetta_virtual_node::VirtualNodeMetricsRegistry;
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, check_devices, read_devices,
};
use tracing::info;

/// Registers the handler `app_hosting` and the driver `FAKE`. Each device chooses its driver in its own
/// specification.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<AppHostingOptions>(HANDLER);
    registry.handler(
        HANDLER,
        "Represents devices as nodes and runs their pods as applications.",
        app_hosting,
    );
    registry.has_virtual_nodes(HANDLER);
    let devices = MemoryDevices::default();
    registry.driver::<dyn AppHostingDrivers>("FAKE", "Simulated, within the process.", move |setup| {
        Ok(Arc::new(devices.of_cluster(setup.cluster_id()?.into())))
    });
}

fn app_hosting(setup: &Setup) -> Result<Registration, SetupError> {
    let mut options: AppHostingOptions = setup.section(HANDLER)?;
    if setup.plan().is_some() {
        // A dry run does not wait for a grace period.
        options.orphan_grace_ms = 0;
    }
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction));
    }
    let devices = read_devices(&options.devices, &options.device_files);
    let devices = devices.map_err(|error| SetupError::Invalid(causes(&error)))?;
    let custom_resources = setup.serves::<CiscoDevice>();
    if !custom_resources {
        info!(
            "the API server does not serve CiscoDevices; until a restart, devices come from the configuration and files only"
        );
    }
    let drivers = AppHostingDriverTable::new(
        setup.driver_name::<dyn AppHostingDrivers>()?,
        setup.drivers::<dyn AppHostingDrivers>()?,
    );
    if setup.is_offline() {
        check_devices(&devices, &drivers).map_err(|error| SetupError::Invalid(causes(&error)))?;
    }
    let handler = AppHosting {
        cluster: setup.cluster_id()?,
        client: setup.client(),
        options,
        devices,
        drivers,
        recorder: setup.recorder(),
        custom_resources,
        figures: VirtualNodeMetricsRegistry::clone(
            &*setup.shared(|| Ok(VirtualNodeMetricsRegistry::default()))?,
        ),
    };
    let registration = handler.registration().map_err(|error| SetupError::Invalid(causes(&error)))?;
    Ok(registration.erase())
}
