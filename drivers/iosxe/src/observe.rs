//! Combines the configuration and the operational data of a device, which are two different reads, into one
//! entry per application.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainerState};
use staffetta_driver::{MacAddress, Owner};
use tokio::time::Instant;

use crate::app::{AppMark, is_of};
use crate::machine::AppState;
use crate::model::config::ConfigData;
use crate::model::oper::{AppInterface, Notification, OperData};

/// The prefix of the id of a container in the status of a pod, before the name of its application.
pub(crate) const ID_PREFIX: &str = "cisco://";

/// The observed state of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The applications in the configuration or the operational data, by name, including those of other users.
    pub(crate) apps: BTreeMap<String, ObservedApp>,
    /// The results of operations on applications that the device has reported; empty if they were not read.
    pub(crate) notifications: Vec<Notification>,
    /// `true` if app hosting (IOx) is enabled on the device; `None` if that was not read, or the device does not report it.
    pub(crate) enabled: Option<bool>,
    /// `true` if the device served its list of applications, so that an application that is not in it is absent.
    pub(crate) served: bool,
    /// `true` if this driver has not read the list of applications often enough to know that an application which it never saw is absent.
    pub(crate) apps_uncertain: bool,
    /// `true` if this driver has not read the configuration often enough to know all addresses in it.
    pub(crate) configuration_uncertain: bool,
}

/// The state of an application on a device, from its configuration and its operational data.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedApp {
    /// The name of the application, which is its id.
    pub(crate) id: String,
    /// The ownership mark (labels in the run options); `None` if the application has no mark or no configuration.
    pub(crate) mark: Option<AppMark>,
    /// `true` if the application is in the configuration.
    pub(crate) configured: bool,
    /// The decoded state; `Absent` without operational data.
    pub(crate) state: AppState,
    /// The state as the device reports it, at most 60 characters; `nothing` without operational data.
    pub(crate) device_text: String,
    /// The IP address that the application reports, or else the one in its configuration; `None` if there is neither.
    pub(crate) address: Option<IpAddr>,
    /// All IP addresses in its configuration, and those that it reports.
    pub(crate) addresses: Vec<IpAddr>,
    /// The MAC addresses of the interfaces of the application.
    pub(crate) macs: Vec<MacAddress>,
    /// The time since which the device has not reported the application, if its absence is not proven; `None` otherwise. `state` is then
    /// the last known state, or `Unknown` if that is too old.
    pub(crate) vanished: Option<Instant>,
    /// The time since which the configuration of the device lacks the application or its mark, if that is not proven; `None` otherwise.
    /// `mark` and `addresses` are then the last known ones.
    pub(crate) unconfigured: Option<Instant>,
}

impl Observed {
    /// Returns the state of an application: `Absent` if the device has no such application, `Unknown` if the device no longer reports
    /// it but its absence is not proven ([`vanished`](ObservedApp::vanished)).
    pub(crate) fn state_of(&self, id: &str) -> AppState {
        let state = |app: &ObservedApp| if app.vanished.is_some() { AppState::Unknown } else { app.state };
        self.apps.get(id).map_or(AppState::Absent, state)
    }

    /// Returns `true` if an application, of this cluster or of others, has the address, as far as the device reports or reported it.
    pub(crate) fn uses(&self, address: IpAddr) -> bool {
        self.apps.values().any(|app| app.addresses.contains(&address))
    }

    /// Returns the container and the pod of an application, for messages; its id if it has no ownership mark.
    pub(crate) fn display_name_of(&self, id: &str) -> String {
        let mark = self.apps.get(id).and_then(|app| app.mark.as_ref());
        let title = |AppMark { owner, container, .. }: &AppMark| {
            format!("{container} of the pod {}/{}", owner.namespace, owner.name)
        };
        mark.map_or_else(|| id.to_owned(), title)
    }

    /// Combines the configuration and the operational data of a device by the name of the application.
    pub(crate) fn join(config: ConfigData, oper: OperData) -> Self {
        let mut apps = BTreeMap::new();
        let served = oper.is_served();
        for app in config.apps.app {
            let (id, mark) = (app.name.clone(), AppMark::read(&app.run_options));
            let (device_text, address, addresses) = ("nothing".into(), app.address, app.mentioned);
            let configured = true;
            let observed = ObservedApp {
                id,
                mark,
                configured,
                device_text,
                address,
                addresses,
                ..ObservedApp::default()
            };
            apps.insert(app.name, observed);
        }
        for app in oper.apps {
            let interfaces = &app.interfaces;
            let mut own = interfaces.iter().filter_map(AppInterface::address).peekable();
            let address = own.peek().copied();
            let observed = apps.entry(app.name.clone()).or_insert_with(ObservedApp::default);
            observed.addresses.extend(own);
            observed.id = app.name;
            observed.state = AppState::read(&app.state);
            observed.device_text = app.state.chars().take(60).collect();
            observed.address = address.or(observed.address);
            observed.macs = interfaces.iter().filter_map(AppInterface::mac).collect();
        }
        let enabled = oper.globals.map(|globals| globals.iox_enabled);
        Self { apps, notifications: oper.notifications, enabled, served, ..Self::default() }
    }
}

impl ObservedApp {
    /// Returns `true` if the device reports the application, or has reported it and its absence is not proven. An
    /// application that is only configured does not count.
    pub(crate) fn is_there(&self) -> bool {
        self.state != AppState::Absent
    }

    /// Returns the applications of `cluster` that the status of a pod shows: an earlier process has seen them on the device.
    pub(crate) fn shown_by(pod: &Pod, cluster: &str) -> Vec<Self> {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let address = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        let apps = containers.iter().enumerate().filter_map(|(position, container)| {
            let id = container.container_id.as_ref()?.strip_prefix(ID_PREFIX)?.to_owned();
            let mark = Some(AppMark {
                owner: Owner::of(&pod.metadata),
                container: container.name.clone(),
                cluster: Some(cluster.to_owned()),
                form: None,
                position: Some(position),
                copied: false,
            });
            let state = match container.state.as_ref() {
                Some(ContainerState { running: Some(_), .. }) => AppState::Running,
                Some(ContainerState { terminated: Some(_), .. }) => AppState::Stopped,
                _ => AppState::Unknown,
            };
            let address = address.filter(|_| position == 0);
            let (device_text, configured) = ("nothing".into(), true);
            Some(Self { id, mark, configured, state, device_text, address, ..Self::default() })
        });
        apps.collect()
    }

    /// Returns the application as `shown` by the last read, with the parts that the read lacks as they are known from before: its state,
    /// missing since `vanished`, and its configuration, missing since `unconfigured`. With `is_long_ago`, the state is too old to be
    /// reported.
    pub(crate) fn completing(
        &self,
        shown: Option<&Self>,
        (vanished, is_long_ago): (Option<Instant>, bool),
        unconfigured: Option<Instant>,
    ) -> Self {
        let nothing = || Self { id: self.id.clone(), device_text: "nothing".into(), ..Self::default() };
        let mut app = Self { vanished, unconfigured, ..shown.cloned().unwrap_or_else(nothing) };
        if vanished.is_some() {
            app.macs.clone_from(&self.macs);
            if is_long_ago {
                app.state = AppState::Unknown;
            } else {
                (app.state, app.device_text) = (self.state, self.device_text.clone());
            }
        }
        if unconfigured.is_some() {
            (app.mark, app.configured) = (self.mark.clone(), self.configured);
        }
        app.address = app.address.or(self.address);
        app.addresses.extend(&self.addresses);
        app.addresses.sort_unstable();
        app.addresses.dedup();
        app
    }

    /// Returns `true` if the application belongs to the pod with this UID: its mark names the pod and no other cluster,
    /// or it has no configuration and its name is derived from the UID.
    pub(crate) fn belongs_to(&self, uid: &str, cluster: &str) -> bool {
        match &self.mark {
            Some(mark) => mark.owner.uid.as_str() == uid && self.is_of(cluster),
            None => !self.configured && is_of(&self.id, uid),
        }
    }

    /// Returns `true` if the application has an ownership mark that names this cluster or no cluster.
    pub(crate) fn is_of(&self, cluster: &str) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.cluster.as_deref().is_none_or(|marked| marked == cluster))
    }

    /// Returns the state of the container for the status of its pod. `problem` is the message with which the device refused the last step,
    /// or explained a failure; `None` if there is neither.
    pub(crate) fn hosted(&self, problem: Option<&str>) -> HostedContainerState {
        let message = match (problem, self.state) {
            (Some(problem), _) => problem.to_owned(),
            (None, AppState::Absent) => "No operational data available".to_owned(),
            (None, _) => format!("App state: {}", self.device_text),
        };
        let stage = match self.state {
            AppState::Running => return HostedContainerState::Running,
            AppState::Stopped => return HostedContainerState::Ended { message },
            AppState::Failed => return HostedContainerState::Failed { reason: "Error".into(), message },
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
        for (device_text, expected) in [
            ("RUNNING", HostedContainerState::Running),
            ("STOPPED", HostedContainerState::Ended { message: "App state: STOPPED".into() }),
            (
                "ERROR",
                HostedContainerState::Failed { reason: "Error".into(), message: "App state: ERROR".into() },
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
            assert_eq!(observed(device_text, &json!([])).apps["a"].hosted(None), expected);
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
        assert!(seen.uses("10.0.0.9".parse().unwrap()) && !seen.uses("10.0.0.8".parse().unwrap()));
        assert!(!seen.apps["foreign"].is_of("east") && !seen.apps["foreign"].belongs_to("u1", "east"));
        assert!(seen.apps["a"].belongs_to("u1", "east") && !seen.apps["a"].belongs_to("u", "east"));
    }
}
