//! Combines the answers of a device: each application of the configuration or the operational data, once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use staffetta_driver::MacAddress;
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainerState};

use crate::app::{AppMark, is_of};
use crate::machine::AppState;
use crate::model::config::ConfigData;
use crate::model::oper::{AppInterface, Notification, OperData};

/// Everything on a device.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// By name.
    pub(crate) apps: BTreeMap<String, ObservedApp>,
    /// The addresses in the configuration and those that applications say they have, of others' too.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) notifications: Vec<Notification>,
    /// `true` if the device hosts applications; `None` if unknown.
    pub(crate) enabled: Option<bool>,
}

/// An application on a device.
#[derive(Debug, Default)]
pub(crate) struct ObservedApp {
    pub(crate) id: String,
    /// The owner; `None` if the application has no mark or no configuration.
    pub(crate) mark: Option<AppMark>,
    pub(crate) configured: bool,
    pub(crate) state: AppState,
    /// The state in the device's own word.
    pub(crate) said: String,
    /// The address that it was given, or says it has.
    pub(crate) address: Option<IpAddr>,
    pub(crate) macs: Vec<MacAddress>,
}

impl Observed {
    /// Puts the answers together.
    pub(crate) fn join(config: ConfigData, oper: OperData) -> Self {
        let mut apps = BTreeMap::new();
        let mut addresses = Vec::new();
        for app in config.apps.app {
            addresses.extend(app.mentioned);
            let (id, mark) = (app.name.clone(), AppMark::read(&app.run_options));
            let (said, address) = ("nothing".into(), app.address);
            let observed =
                ObservedApp { id, mark, configured: true, said, address, ..ObservedApp::default() };
            apps.insert(app.name, observed);
        }
        for app in oper.apps {
            let interfaces = &app.interfaces;
            let mut own = interfaces.iter().filter_map(AppInterface::address).peekable();
            let address = own.peek().copied();
            addresses.extend(own);
            let observed = apps.entry(app.name.clone()).or_insert_with(ObservedApp::default);
            observed.id = app.name;
            observed.state = AppState::read(&app.state);
            observed.said = app.state.chars().take(60).collect();
            observed.address = address.or(observed.address);
            observed.macs = interfaces.iter().filter_map(AppInterface::mac).collect();
        }
        let enabled = oper.globals.map(|globals| globals.iox_enabled);
        Self { apps, addresses, notifications: oper.notifications, enabled }
    }
}

impl ObservedApp {
    /// Returns `true` if it belongs to the pod with this UID, in this cluster or unmarked. Without a configuration
    /// only its name counts.
    pub(crate) fn belongs_to(&self, uid: &str, cluster: &str) -> bool {
        match &self.mark {
            Some(mark) => mark.owner.uid.as_str() == uid && self.is_of(cluster),
            None => !self.configured && is_of(&self.id, uid),
        }
    }

    /// Returns `true` if its mark does not name another cluster.
    pub(crate) fn is_of(&self, cluster: &str) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.cluster.as_deref().is_none_or(|marked| marked == cluster))
    }

    /// The state to report; `problem` is the message with which the device refused a step.
    pub(crate) fn hosted(&self, problem: Option<&str>) -> HostedContainerState {
        let message = match (problem, self.state) {
            (Some(problem), _) => problem.to_owned(),
            (None, AppState::Absent) => "No operational data available".to_owned(),
            (None, _) => format!("App state: {}", self.said),
        };
        let stage = match self.state {
            AppState::Running => return HostedContainerState::Running,
            AppState::Stopped => return HostedContainerState::Ended { message },
            AppState::Failed => return HostedContainerState::Failed { reason: "AppFailed".into(), message },
            AppState::Absent => DeploymentStage::Configured,
            AppState::Installing => DeploymentStage::Installing,
            AppState::Deployed => DeploymentStage::Installed,
            AppState::Activated => DeploymentStage::Activated,
            AppState::Unknown => DeploymentStage::Unknown,
        };
        HostedContainerState::Waiting { stage, message }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn observed(state: &str, interfaces: &serde_json::Value) -> Observed {
        let labels =
            "--label cisco.vk/pod-name=web --label cisco.vk/pod-uid=u1 --label cisco.vk/container-name=app";
        let config = json!({ "apps": { "app": [
            { "application-name": "a", "run-optss": { "run-opts": [{ "line-index": 1, "line-run-opts": labels }] } },
            { "application-name": "foreign", "application-network-resource": {
                "virtualportgroup-guest-ip-address-1": "10.0.0.9" } },
        ] } });
        let oper = json!({ "app": [
            { "name": "a", "details": { "state": state }, "network-interfaces": { "network-interface": interfaces } },
        ] });
        let config = serde_json::from_value(config).unwrap();
        Observed::join(config, serde_json::from_value(oper).unwrap())
    }

    #[test]
    fn every_state_is_reported_as_the_table_says() {
        for (said, expected) in [
            ("RUNNING", HostedContainerState::Running),
            ("STOPPED", HostedContainerState::Ended { message: "App state: STOPPED".into() }),
            (
                "ERROR",
                HostedContainerState::Failed {
                    reason: "AppFailed".into(),
                    message: "App state: ERROR".into(),
                },
            ),
            (
                "Uninstalled",
                HostedContainerState::Waiting {
                    stage: DeploymentStage::Configured,
                    message: "No operational data available".into(),
                },
            ),
            (
                "DANCING",
                HostedContainerState::Waiting {
                    stage: DeploymentStage::Unknown,
                    message: "App state: DANCING".into(),
                },
            ),
            (
                "INSTALLING",
                HostedContainerState::Waiting {
                    stage: DeploymentStage::Installing,
                    message: "App state: INSTALLING".into(),
                },
            ),
            (
                "DEPLOYED",
                HostedContainerState::Waiting {
                    stage: DeploymentStage::Installed,
                    message: "App state: DEPLOYED".into(),
                },
            ),
            (
                "ACTIVATED",
                HostedContainerState::Waiting {
                    stage: DeploymentStage::Activated,
                    message: "App state: ACTIVATED".into(),
                },
            ),
        ] {
            assert_eq!(observed(said, &json!([])).apps["a"].hosted(None), expected);
        }
        let degraded = observed("DEPLOYED", &json!([])).apps["a"].hosted(Some("no room"));
        assert_eq!(
            degraded,
            HostedContainerState::Waiting { stage: DeploymentStage::Installed, message: "no room".into() }
        );
    }

    #[test]
    fn an_address_that_is_none_counts_as_none() {
        let unspecified = json!([{ "mac-address": "02:00:00:00:00:01", "ipv4-address": "0.0.0.0" }]);
        let seen = observed("RUNNING", &unspecified);
        assert_eq!((seen.apps["a"].address, seen.apps["a"].macs.len()), (None, 1));
        let second = json!([{ "mac-address": "02:00:00:00:00:01" }, { "ipv4-address": "192.0.2.7" }]);
        assert_eq!(observed("RUNNING", &second).apps["a"].address, Some("192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn the_addresses_of_others_count_and_their_applications_belong_to_nobody() {
        let seen = observed("RUNNING", &json!([]));
        assert_eq!(seen.addresses, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
        assert!(!seen.apps["foreign"].is_of("east") && !seen.apps["foreign"].belongs_to("u1", "east"));
        assert!(seen.apps["a"].belongs_to("u1", "east") && !seen.apps["a"].belongs_to("u", "east"));
    }
}
