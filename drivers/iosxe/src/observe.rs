//! What the device says, put together: each application of the configuration or of the operation, once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use staffetta_driver::app_hosting::{HostedState, Stage};

use crate::app::{Mark, is_of};
use crate::machine::AppState;
use crate::model::arp::Mac;
use crate::model::config::ConfigData;
use crate::model::oper::{Interface, Notification, OperData};

/// Everything on a device.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// By name.
    pub(crate) apps: BTreeMap<String, ObservedApp>,
    /// The addresses in the configuration and those that applications say they have, of others' too.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) notifications: Vec<Notification>,
    /// Whether the device hosts applications at all, where it was asked.
    pub(crate) enabled: Option<bool>,
}

/// An application on a device.
#[derive(Debug)]
pub(crate) struct ObservedApp {
    pub(crate) id: String,
    /// Whose it is; none for one that nobody marked, or that is not configured.
    pub(crate) mark: Option<Mark>,
    pub(crate) configured: bool,
    pub(crate) state: AppState,
    /// The state in the device's own word.
    pub(crate) said: String,
    /// The address that it was given, or says it has.
    pub(crate) address: Option<IpAddr>,
    pub(crate) macs: Vec<Mac>,
}

impl Observed {
    /// Puts the answers together.
    pub(crate) fn join(config: ConfigData, oper: OperData) -> Self {
        let mut apps = BTreeMap::new();
        let mut addresses = Vec::new();
        for app in config.apps.app {
            addresses.extend(&app.mentioned);
            let observed = ObservedApp {
                id: app.application_name.clone(),
                mark: Mark::read(&app.run_optss),
                configured: true,
                state: AppState::Absent,
                said: "nothing".into(),
                address: app.addresses().next(),
                macs: Vec::new(),
            };
            apps.insert(app.application_name, observed);
        }
        for app in oper.apps {
            let interfaces = &app.network_interfaces.network_interface;
            let mut own = interfaces.iter().filter_map(Interface::address).peekable();
            let address = own.peek().copied();
            addresses.extend(own);
            let observed = apps.entry(app.name.clone()).or_insert_with(|| ObservedApp {
                id: app.name.clone(),
                mark: None,
                configured: false,
                state: AppState::Absent,
                said: String::new(),
                address: None,
                macs: Vec::new(),
            });
            observed.state = AppState::read(&app.details.state);
            observed.said = app.details.state.chars().take(60).collect();
            observed.address = address.or(observed.address);
            observed.macs = interfaces.iter().filter_map(Interface::mac).collect();
        }
        let enabled = oper.globals.map(|globals| globals.iox_enabled);
        Self { apps, addresses, notifications: oper.notifications, enabled }
    }
}

impl ObservedApp {
    /// Whether it belongs to the pod with this UID, in this cluster or in none. One whose configuration is gone is known by
    /// its name alone.
    pub(crate) fn belongs_to(&self, uid: &str, cluster: &str) -> bool {
        match &self.mark {
            Some(mark) => mark.owner.uid.as_str() == uid && self.is_of(cluster),
            None => !self.configured && is_of(&self.id, uid),
        }
    }

    /// Whether it is marked, and not with another cluster.
    pub(crate) fn is_of(&self, cluster: &str) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.cluster.as_deref().is_none_or(|marked| marked == cluster))
    }

    /// The state as it is told; `trouble` is what the device said when it refused a step.
    pub(crate) fn hosted(&self, trouble: Option<&str>) -> HostedState {
        let message = match (trouble, self.state) {
            (Some(trouble), _) => trouble.to_owned(),
            (None, AppState::Absent) => "No operational data available".to_owned(),
            (None, _) => format!("App state: {}", self.said),
        };
        let stage = match self.state {
            AppState::Running => return HostedState::Running,
            AppState::Stopped => return HostedState::Ended { message },
            AppState::Failed => return HostedState::Failed { reason: "AppFailed".into(), message },
            AppState::Absent => Stage::Configured,
            AppState::Installing => Stage::Installing,
            AppState::Deployed => Stage::Installed,
            AppState::Activated => Stage::Activated,
            AppState::Unknown => Stage::Unknown,
        };
        HostedState::Waiting { stage, message }
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
    fn every_state_is_told_as_the_table_says() {
        for (said, expected) in [
            ("RUNNING", HostedState::Running),
            ("STOPPED", HostedState::Ended { message: "App state: STOPPED".into() }),
            ("ERROR", HostedState::Failed { reason: "AppFailed".into(), message: "App state: ERROR".into() }),
            (
                "Uninstalled",
                HostedState::Waiting {
                    stage: Stage::Configured,
                    message: "No operational data available".into(),
                },
            ),
            ("DANCING", HostedState::Waiting { stage: Stage::Unknown, message: "App state: DANCING".into() }),
            (
                "INSTALLING",
                HostedState::Waiting { stage: Stage::Installing, message: "App state: INSTALLING".into() },
            ),
            (
                "DEPLOYED",
                HostedState::Waiting { stage: Stage::Installed, message: "App state: DEPLOYED".into() },
            ),
            (
                "ACTIVATED",
                HostedState::Waiting { stage: Stage::Activated, message: "App state: ACTIVATED".into() },
            ),
        ] {
            assert_eq!(observed(said, &json!([])).apps["a"].hosted(None), expected);
        }
        let troubled = observed("DEPLOYED", &json!([])).apps["a"].hosted(Some("no room"));
        assert_eq!(troubled, HostedState::Waiting { stage: Stage::Installed, message: "no room".into() });
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
