//! The handlers of nodes that some other machine stands for.

use staffetta_driver::app_hosting::{AppHostingDrivers, DriverTable};
use staffetta_handler::{Registration, Registry, Setup, SetupError, causes};
use staffetta_virtual_node::FigureBoard;
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, read_devices,
};
use tracing::info;

use crate::config::Kubernetes;

/// The handlers that keep nodes.
const KEEPERS: [&str; 1] = [HANDLER];

/// Adds the handlers.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<AppHostingOptions>(HANDLER);
    registry.handler(HANDLER, "Devices are nodes, and pods on them applications.", app_hosting);
}

/// Whether a handler is enabled that keeps nodes, so that others must tell their pods apart.
pub(super) fn are_kept(setup: &Setup) -> Result<bool, SetupError> {
    let Kubernetes { enabled_handlers, .. } = setup.section("kubernetes")?;
    Ok(enabled_handlers.iter().any(|name| KEEPERS.contains(&name.as_str())))
}

fn app_hosting(setup: &Setup) -> Result<Registration, SetupError> {
    let mut options: AppHostingOptions = setup.section(HANDLER)?;
    if setup.plan().is_some() {
        // It cannot be waited for who may still come for it.
        options.orphan_grace_ms = 0;
    }
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction.to_owned()));
    }
    let devices = read_devices(&options.devices, &options.device_files);
    let devices = devices.map_err(|error| SetupError::Invalid(causes(&error)))?;
    let custom_resources = setup.serves::<CiscoDevice>();
    if !custom_resources {
        info!(
            "the API server has no CiscoDevices; devices come from the configuration and files alone until this program starts again"
        );
    }
    let drivers = DriverTable::new(
        setup.driver_name::<dyn AppHostingDrivers>()?,
        setup.drivers::<dyn AppHostingDrivers>()?,
    );
    let handler = AppHosting {
        cluster: setup.cluster_id()?,
        client: setup.client(),
        options,
        devices,
        drivers,
        notes: setup.notes(),
        custom_resources,
        figures: FigureBoard::clone(&*setup.shared(|| Ok(FigureBoard::default()))?),
    };
    let registration = handler.registration().map_err(|error| SetupError::Invalid(causes(&error)))?;
    Ok(registration.erase())
}
