//! The handlers of nodes that some other machine stands for.

use staffetta_driver::app_hosting::{AppHostingDrivers, DriverTable};
use staffetta_handler::{Registration, Registry, Setup, SetupError, causes};
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, read_devices,
};
use tracing::info;

/// Adds the handlers.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<AppHostingOptions>(HANDLER);
    registry.handler(HANDLER, "Devices are nodes, and pods on them applications.", app_hosting);
}

fn app_hosting(setup: &Setup) -> Result<Registration, SetupError> {
    let options: AppHostingOptions = setup.section(HANDLER)?;
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction.to_owned()));
    }
    let devices = read_devices(&options.device_files).map_err(|error| SetupError::Invalid(causes(&error)))?;
    let custom_resources = setup.serves::<CiscoDevice>();
    if !custom_resources {
        info!(
            "the API server has no CiscoDevices; devices come from files alone until this program starts again"
        );
    }
    let drivers = DriverTable::new(
        setup.driver_name::<dyn AppHostingDrivers>()?,
        setup.drivers::<dyn AppHostingDrivers>()?,
    );
    let handler = AppHosting {
        client: setup.client(),
        options,
        devices,
        drivers,
        notes: setup.notes(),
        custom_resources,
    };
    let registration = handler.registration().map_err(|error| SetupError::Invalid(causes(&error)))?;
    Ok(registration.erase())
}
