//! The module `Cisco-IOS-XE-app-hosting-oper`: how applications are. Numbers of 64 bits come as strings.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use super::arp::Mac;
use super::list::each;
use super::number::lenient;

/// The container `app-hosting-oper-data`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OperData {
    #[serde(rename = "app", deserialize_with = "apps")]
    pub(crate) apps: Vec<App>,
    #[serde(rename = "app-resources")]
    pub(crate) resources: Vec<Resources>,
    #[serde(rename = "app-notifications", deserialize_with = "notifications")]
    pub(crate) notifications: Vec<Notification>,
    #[serde(rename = "app-globals")]
    pub(crate) globals: Option<Globals>,
}

/// The applications one by one: of one that cannot be read there remain its name and the word for its state.
fn apps<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<App>, D::Error> {
    each(list, |entry, read| {
        read.or_else(|| {
            let state = entry["details"]["state"].as_str().unwrap_or_default().to_owned();
            let details = Details { state, ..Details::default() };
            Some(App { name: entry["name"].as_str()?.to_owned(), details, ..App::default() })
        })
    })
}

/// The notifications one by one: one that cannot be read tells nothing.
fn notifications<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<Notification>, D::Error> {
    each(list, |_, read| read)
}

/// An application.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) details: Details,
    pub(crate) utilization: Utilization,
    pub(crate) network_utils: NetworkUtils,
    pub(crate) storage_utils: StorageUtils,
    pub(crate) network_interfaces: Interfaces,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Details {
    /// A free text in the model: what is not known is kept as it is.
    pub(crate) state: String,
    pub(crate) resource_reservation: Reservation,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reservation {
    /// In units.
    #[serde(deserialize_with = "lenient")]
    pub(crate) cpu: Option<u64>,
    /// In MB.
    #[serde(deserialize_with = "lenient")]
    pub(crate) memory: Option<u64>,
    /// In MB.
    #[serde(deserialize_with = "lenient")]
    pub(crate) disk: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Utilization {
    pub(crate) cpu_util: CpuUtil,
    pub(crate) memory_util: MemoryUtil,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct CpuUtil {
    /// Percent of what is reserved.
    #[serde(deserialize_with = "lenient")]
    pub(crate) actual_application_util: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct MemoryUtil {
    /// In KB.
    #[serde(deserialize_with = "lenient")]
    pub(crate) memory_used: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct NetworkUtils {
    pub(crate) network_util: Vec<NetworkUtil>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct NetworkUtil {
    #[serde(deserialize_with = "lenient")]
    pub(crate) rx_bytes: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) tx_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct StorageUtils {
    pub(crate) storage_util: Vec<StorageUtil>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StorageUtil {
    /// In blocks of a thousand bytes.
    #[serde(deserialize_with = "lenient")]
    pub(crate) used: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Interfaces {
    pub(crate) network_interface: Vec<Interface>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Interface {
    #[serde(rename = "mac-address")]
    hardware: String,
    #[serde(rename = "ipv4-address")]
    ipv4: String,
    #[serde(rename = "ipv6-address")]
    ipv6: String,
}

impl Interface {
    /// The address that it says it has; `0.0.0.0` is none.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let texts = [&self.ipv4, &self.ipv6];
        let mut addresses = texts.into_iter().filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.find(|address| !address.is_unspecified())
    }

    pub(crate) fn mac(&self) -> Option<Mac> {
        Mac::parse(&self.hardware)
    }
}

/// What the device has for applications.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Resources {
    pub(crate) cpu: Vec<Cpu>,
    pub(crate) memory: Vec<Amount>,
    pub(crate) storage_device: Vec<Amount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Cpu {
    #[serde(deserialize_with = "lenient")]
    pub(crate) quota_unit: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) available_unit: Option<u64>,
}

/// An amount in MB.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Amount {
    pub(crate) name: String,
    #[serde(deserialize_with = "lenient")]
    pub(crate) quota: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) available: Option<u64>,
}

/// Something that happened, and how it went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Notification {
    pub(crate) timestamp: String,
    pub(crate) app_id: String,
    pub(crate) status: String,
    pub(crate) message: String,
}

impl Notification {
    /// Whether it says that something went wrong with this application.
    pub(crate) fn tells_of_failure(&self, id: &str) -> bool {
        self.app_id == id && self.status == "im-app-fail"
    }

    /// Whether it says that the device cannot do such a thing at all.
    pub(crate) fn tells_of_the_impossible(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        message.contains("not supported") || message.contains("unsupported")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Globals {
    pub(crate) iox_enabled: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_of_one_application_hides_no_other_one() {
        let told = |message: serde_json::Value| json!({ "app-id": "a", "status": "im-app-fail", "message": message });
        let data = json!({
            "app": [
                { "name": "odd", "details": { "state": "RUNNING" }, "network-interfaces": null },
                { "name": "mute", "details": null },
                { "name": null },
                { "name": "a", "details": { "state": "DEPLOYED" } },
            ],
            "app-notifications": [told(json!(null)), told(json!(7)), json!(null), told(json!("no room"))],
        });
        let read: OperData = serde_json::from_value(data).unwrap();
        let states: Vec<_> = read.apps.iter().map(|app| (&*app.name, &*app.details.state)).collect();
        assert_eq!(states, [("odd", "RUNNING"), ("mute", ""), ("a", "DEPLOYED")]);
        let messages: Vec<_> = read.notifications.iter().map(|told| &*told.message).collect();
        assert_eq!(messages, ["no room"]);
    }
}
