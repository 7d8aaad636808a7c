//! Registers the handler `app_hosting` of virtual nodes, and the driver `FAKE`, which simulates devices within this process.

use std::sync::Arc;

use staffetta_driver::app_hosting::{AppHostingDriverTable, AppHostingDrivers};
use staffetta_handler::{Finding, Registration, Registry, Setup, SetupError, causes};
use staffetta_memory::MemoryDevices;
use staffetta_virtual_node::MachineState;
use staffetta_virtual_node::app_hosting::{
    AppHosting, AppHostingOptions, CiscoDevice, HANDLER, check_devices, read_devices,
};
use tracing::info;

use crate::base::metrics::Metrics;

/// The section of a device specification that only one kind of device has. Its mistakes are found with those in the rest, where the driver
/// is compiled in.
#[cfg(feature = "iosxe")]
type DeviceSection = staffetta_iosxe::XeSpec;
#[cfg(not(feature = "iosxe"))]
type DeviceSection = serde_json::Map<String, serde_json::Value>;

/// The maximum number of unreachable machines (devices or bases) that a check names.
const MAX_MACHINES: usize = 20;

/// Registers the handler `app_hosting`, which represents devices as nodes, with its options, and the driver `FAKE`, which simulates
/// devices. Each device chooses its driver in its own specification.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<AppHostingOptions<DeviceSection>>(HANDLER);
    let about = "Represents devices as nodes and runs their pods as applications.";
    registry.handler(HANDLER, about, app_hosting).has_virtual_nodes = true;
    let devices = MemoryDevices::default();
    registry.driver::<dyn AppHostingDrivers>("FAKE", "Simulated, within the process.", move |setup| {
        Ok(Arc::new(devices.of_cluster(setup.cluster_id()?.into())))
    });
}

/// Registers a check for `kubectl staffetta check` that reports which machines behind the nodes of `handler` cannot be reached. `machines`
/// is the word for machines in messages: `devices` or `bases`.
pub(super) fn diagnose(
    setup: &Setup,
    handler: &'static str,
    machines: &'static str,
) -> Result<(), SetupError> {
    let figures = setup.shared(|| Ok(Metrics::default()))?.virtual_nodes.clone();
    setup.diagnosis(handler, move || {
        let findings = reachability_findings(machines, figures.machines(handler));
        async move { Ok(findings) }
    });
    Ok(())
}

/// Returns a finding with the number of reachable machines, and a failure for each unreachable one, at most [`MAX_MACHINES`].
fn reachability_findings(machines: &str, states: Vec<(String, MachineState)>) -> Vec<Finding> {
    let count = |state| states.iter().filter(|(_, of)| *of == state).count();
    let (check, untried) = (format!("the {machines} are known"), count(MachineState::Untried));
    let detail = format!("{} of {} answer", count(MachineState::Reached), states.len());
    let mut findings = vec![if untried == 0 {
        Finding::ok(check, detail)
    } else {
        Finding::warning(check, format!("{detail}, {untried} were not read yet"), "check again in a minute")
    }];
    let lost = states.into_iter().filter_map(|(name, state)| match state {
        MachineState::Unreachable(outage) => Some((name, outage)),
        MachineState::Reached | MachineState::Untried => None,
    });
    findings.extend(lost.take(MAX_MACHINES).map(|(name, outage)| {
        let remedy =
            "the controller tries again by itself; correct its address, its credentials or the network";
        Finding::failed(format!("{name} answers"), outage, remedy)
    }));
    findings
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

#[cfg(test)]
mod tests {
    use staffetta_handler::CheckResult;

    use super::*;

    #[test]
    fn machines_that_were_not_read_yet_are_a_warning_and_unreachable_ones_failures() {
        let results = |states: &[MachineState]| {
            let named = states.iter().map(|state| ("base-1".to_owned(), state.clone())).collect();
            reachability_findings("bases", named)
                .into_iter()
                .map(|finding| (finding.result, finding.detail))
                .collect::<Vec<_>>()
        };
        let (reached, untried) = (MachineState::Reached, MachineState::Untried);
        let lost = MachineState::Unreachable("no route".to_owned());
        let told = results(&[reached.clone(), untried]);
        assert_eq!(told, [(CheckResult::Warning, "1 of 2 answer, 1 were not read yet".to_owned())]);
        let told = results(&[reached, lost]);
        let counted = (CheckResult::Ok, "1 of 2 answer".to_owned());
        assert_eq!(told, [counted, (CheckResult::Failed, "no route".to_owned())]);
    }
}
