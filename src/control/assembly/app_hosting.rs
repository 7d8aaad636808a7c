//! Registers the handler `app_hosting` of virtual nodes, and the driver `FAKE`, which simulates devices within this process.

#[cfg(feature = "memory")]
use std::sync::Arc;

use staffetta_driver::app_hosting::{AppHostingDriverTable, AppHostingDrivers};
use staffetta_handler::{Registration, Registry, Setup, SetupError, causes};
#[cfg(feature = "memory")]
use staffetta_memory::MemoryDevices;
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, check_devices, read_devices,
};
use tracing::info;

use super::virtual_node::diagnose;
use crate::base::metrics::Metrics;

/// The section of a device specification that only one kind of device has. Its mistakes are found with those in the rest, where the driver
/// is compiled in.
#[cfg(feature = "iosxe")]
type DeviceSection = staffetta_iosxe::XeSpec;
#[cfg(not(feature = "iosxe"))]
type DeviceSection = serde_json::Map<String, serde_json::Value>;

/// Registers the handler `app_hosting`, which represents devices as nodes, with its options, and the driver `FAKE`, which simulates
/// devices. Each device chooses its driver in its own specification.
pub(super) fn register(registry: &mut Registry) {
    registry.section::<AppHostingOptions<DeviceSection>>(HANDLER);
    let about = "Represents devices as nodes and runs their pods as applications.";
    registry.handler(HANDLER, about, app_hosting).has_virtual_nodes = true;
    #[cfg(feature = "memory")]
    {
        let devices = MemoryDevices::default();
        registry.driver::<dyn AppHostingDrivers>("FAKE", "Simulated, within the process.", move |setup| {
            Ok(Arc::new(devices.of_cluster(setup.cluster_id()?.into())))
        });
    }
}

/// Creates the handler `app_hosting` for the devices of the configuration, of files and, if the API server serves them, of `CiscoDevice`s.
/// `config check`, which is offline, also checks each device with its driver.
fn app_hosting(setup: &Setup) -> Result<Registration, SetupError> {
    let mut options: AppHostingOptions = setup.section(HANDLER)?;
    if setup.plan.is_some() {
        // A dry run does not wait for a grace period.
        options.orphan_grace_ms = 0;
    }
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction));
    }
    let devices = read_devices::<DeviceSection>(&options.devices, &options.device_files);
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
    if setup.plan.is_none() {
        diagnose(setup, HANDLER, "devices")?;
    }
    let handler = AppHosting {
        cluster: setup.cluster_id()?,
        client: setup.client(),
        options,
        devices,
        drivers,
        recorder: setup.recorder.clone(),
        custom_resources,
        figures: setup.shared(|| Ok(Metrics::default()))?.virtual_nodes.clone(),
    };
    let registration =
        handler.registration::<DeviceSection>().map_err(|error| SetupError::Invalid(causes(&error)))?;
    Ok(registration.erase())
}
