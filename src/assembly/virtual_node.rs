//! Registers the handler of virtual nodes, and the driver `FAKE`, which simulates devices within this process.

use std::sync::Arc;

use staffetta_driver::app_hosting::{AppHostingDriverTable, AppHostingDrivers};
use staffetta_handler::{Finding, Registration, Registry, Setup, SetupError, causes};
use staffetta_memory::MemoryDevices;
use staffetta_virtual_node::VirtualNodeMetricsRegistry;
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, check_devices, read_devices,
};
use tracing::info;

/// The maximum number of unreachable machines that a check names.
const MAX_MACHINES: usize = 20;

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

/// Adds a check of the machines of `handler`, which `machines` names: `devices` or `bases`.
pub(super) fn diagnose(
    setup: &Setup,
    handler: &'static str,
    machines: &'static str,
) -> Result<(), SetupError> {
    let figures = setup.shared(|| Ok(VirtualNodeMetricsRegistry::default()))?;
    setup.diagnosis(handler, move || {
        let (reached, lost): (Vec<_>, Vec<_>) =
            figures.machines(handler).into_iter().partition(|(_, outage)| outage.is_none());
        let mut findings = vec![Finding::ok(
            format!("the {machines} are known"),
            format!("{} of {} answer", reached.len(), reached.len() + lost.len()),
        )];
        findings.extend(lost.into_iter().take(MAX_MACHINES).map(|(name, outage)| {
            let remedy =
                "the controller tries again by itself; correct its address, its credentials or the network";
            Finding::failed(format!("{name} answers"), outage.unwrap_or_default(), remedy)
        }));
        async move { Ok(findings) }
    });
    Ok(())
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
    if setup.plan().is_none() {
        diagnose(setup, HANDLER, "devices")?;
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
