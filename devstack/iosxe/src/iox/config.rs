//! The parts of the configuration that app hosting reads.

use std::net::Ipv4Addr;

use serde_json::Value;

use crate::options::Resources;

/// The tree below `app-hosting-cfg-data`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppConfig<'a>(pub(crate) &'a Value);

impl<'a> AppConfig<'a> {
    /// The configured apps.
    pub(crate) fn apps(self) -> impl Iterator<Item = &'a Value> {
        self.0["apps"]["app"].as_array().into_iter().flatten()
    }

    /// Their names.
    pub(crate) fn names(self) -> impl Iterator<Item = &'a str> {
        self.apps().filter_map(|app| app["application-name"].as_str())
    }

    pub(crate) fn app(self, name: &str) -> Option<&'a Value> {
        self.apps().find(|app| app["application-name"] == name)
    }

    /// Returns `true` if the app is configured to start by itself.
    pub(crate) fn starts(self, name: &str) -> bool {
        self.app(name).is_some_and(|app| app["start"] == true)
    }

    /// The resources that the app reserves.
    pub(crate) fn profile(self, name: &str) -> Resources {
        let profile = self.app(name).map(|app| &app["application-resource-profile"]);
        let number = |leaf: &str| profile.and_then(|profile| profile[leaf].as_u64()).unwrap_or_default();
        Resources {
            cpu_units: number("cpu-units"),
            memory_mb: number("memory-capacity-mb"),
            disk_mb: number("disk-size-mb"),
        }
    }

    /// The number of virtual CPUs of the app.
    pub(crate) fn vcpus(self, name: &str) -> u64 {
        self.app(name).and_then(|app| app["application-resource-profile"]["vcpu"].as_u64()).unwrap_or(1)
    }

    /// The lines of the options for docker, in their order.
    pub(crate) fn run_opts(self, name: &str) -> Vec<&'a str> {
        let lines = self.app(name).and_then(|app| app["run-optss"]["run-opts"].as_array());
        let mut lines: Vec<_> = lines.into_iter().flatten().collect();
        lines.sort_by_key(|line| line["line-index"].as_u64());
        lines.into_iter().filter_map(|line| line["line-run-opts"].as_str()).collect()
    }

    /// The address that is configured for the app, wherever it stands.
    pub(crate) fn static_address(self, name: &str) -> Option<Ipv4Addr> {
        let app = self.app(name)?;
        let network = &app["application-network-resource"];
        let rules = app["appintf-vlan-rules"]["appintf-vlan-rule"].as_array().into_iter().flatten();
        let places =
            [&network["virtualportgroup-guest-ip-address-1"], &network["management-guest-ip-address"]];
        let mut places = places.into_iter().chain(rules.map(|rule| &rule["guest-ip"]));
        places.find_map(|place| place.as_str()?.parse().ok())
    }

    /// The interface of the device behind which the app is.
    pub(crate) fn interface(self, name: &str) -> String {
        let Some(app) = self.app(name) else { return "VirtualPortGroup0".into() };
        let network = &app["application-network-resource"];
        if let Some(group) = network["vnic-gateway-0"].as_str() {
            return format!("VirtualPortGroup{group}");
        }
        match network["appintf-vlan-mode"].as_str() {
            None | Some("appintf-not-set") => "GigabitEthernet0".into(),
            Some(_) => "AppGigabitEthernet1/0/1".into(),
        }
    }
}
