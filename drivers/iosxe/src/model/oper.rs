//! The YANG module `Cisco-IOS-XE-app-hosting-oper`: the operational data of applications.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use staffetta_driver::MacAddress;

use super::arp;

/// The YANG container `app-hosting-oper-data`: the operational data of app hosting.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OperData {
    /// The applications of all users.
    #[serde(rename = "app", deserialize_with = "apps")]
    pub(crate) apps: Vec<App>,
    /// The CPU, memory and storage of the device for applications, in total and free; not decoded further.
    #[serde(rename = "app-resources", deserialize_with = "resources")]
    pub(crate) resources: Vec<Value>,
    /// The results of the last operations on applications.
    #[serde(rename = "app-notifications", deserialize_with = "readable")]
    pub(crate) notifications: Vec<Notification>,
    /// The global state of app hosting; `None` if the device does not report it.
    #[serde(rename = "app-globals")]
    pub(crate) globals: Option<Globals>,
}

impl OperData {
    /// Returns `true` if the device served its list of applications: app hosting is enabled or, if the device does not report that, the
    /// list is not empty. While app hosting is disabled or starts, devices serve no list.
    pub(crate) fn is_served(&self) -> bool {
        self.globals.as_ref().map_or(!self.apps.is_empty(), |globals| globals.iox_enabled)
    }
}

/// Decodes the list `app-resources`. Returns an error if an amount (CPU, memory or storage) is not a list: otherwise the device would
/// look as if it had no resources.
fn resources<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<Value>, D::Error> {
    let resources = Vec::<Value>::deserialize(list)?;
    let is_malformed = |all: &Value| {
        ["cpu", "memory", "storage-device"].iter().any(|list| !all[list].is_array() && !all[list].is_null())
    };
    if resources.iter().any(is_malformed) {
        return Err(serde::de::Error::custom("an amount in app-resources is not a list"));
    }
    Ok(resources)
}

/// Decodes the applications that have a name. If a part of an application cannot be decoded, the other parts are still
/// decoded.
fn apps<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<App>, D::Error> {
    Ok(Vec::<Value>::deserialize(list)?.iter().filter_map(App::read).collect())
}

/// Decodes the entries of a list, without those that cannot be decoded.
fn readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Value>::deserialize(list)?.iter().filter_map(|entry| T::deserialize(entry).ok()).collect())
}

/// The operational data of an application. A number is `None` if the device does not report it.
#[derive(Debug, Default)]
pub(crate) struct App {
    /// The name of the application.
    pub(crate) name: String,
    /// The state as the device reports it (leaf `details/state`): `RUNNING`.
    pub(crate) state: String,
    /// The network interfaces of the application.
    pub(crate) interfaces: Vec<AppInterface>,
    /// The reserved CPU units, each a thousandth of a CPU.
    pub(crate) cpu: Option<u64>,
    /// The reserved memory, in MB of 2^20 bytes.
    pub(crate) memory: Option<u64>,
    /// The reserved storage, in MB of 2^20 bytes.
    pub(crate) disk: Option<u64>,
    /// The used CPU, in percent of the reservation.
    pub(crate) used_cpu: Option<u64>,
    /// The used memory, in KB of 1024 bytes.
    pub(crate) used_memory: Option<u64>,
    /// The used storage, in blocks of 1000 bytes.
    pub(crate) used_storage: Option<u64>,
    /// The bytes that all interfaces of the application have received.
    pub(crate) received_bytes: Option<u64>,
    /// The bytes that all interfaces of the application have sent.
    pub(crate) sent_bytes: Option<u64>,
}

impl App {
    /// Reads one entry of `app-hosting-oper-data/app`; `None` without a name. A text that is missing counts as empty, and a number as
    /// unknown, because each release of IOS-XE fills in other leaves.
    fn read(app: &Value) -> Option<Self> {
        let (details, used) = (&app["details"], &app["utilization"]);
        let reserved = &details["resource-reservation"];
        let (network, interfaces) = (&app["network-utils"], &app["network-interfaces"]["network-interface"]);
        Some(Self {
            name: app["name"].as_str()?.to_owned(),
            state: details["state"].as_str().unwrap_or_default().to_owned(),
            interfaces: Deserialize::deserialize(interfaces).unwrap_or_default(),
            cpu: number(&reserved["cpu"]),
            memory: number(&reserved["memory"]),
            disk: number(&reserved["disk"]),
            used_cpu: number(&used["cpu-util"]["actual-application-util"]),
            used_memory: number(&used["memory-util"]["memory-used"]),
            used_storage: total(&app["storage-utils"]["storage-util"], "used"),
            received_bytes: total(&network["network-util"], "rx-bytes"),
            sent_bytes: total(&network["network-util"], "tx-bytes"),
        })
    }
}

/// Returns a number, also one in a string: RFC 7951 requires strings for 64-bit numbers, but not every device sends
/// them. `None` if the value is no number.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the sum of a leaf over the entries of a list; `None` if no entry has the leaf.
pub(crate) fn total(list: &Value, leaf: &str) -> Option<u64> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| number(&entry[leaf])).reduce(u64::saturating_add)
}

/// A network interface of an application.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AppInterface {
    #[serde(rename = "mac-address")]
    hardware: String,
    #[serde(rename = "ipv4-address")]
    ipv4: String,
    #[serde(rename = "ipv6-address")]
    ipv6: String,
}

impl AppInterface {
    /// Returns the IP address that the interface reports, IPv4 first; `None` if there is none, or it is `0.0.0.0`.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let texts = [&self.ipv4, &self.ipv6];
        let mut addresses = texts.into_iter().filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.find(|address| !address.is_unspecified())
    }

    /// Returns the MAC address of the interface; `None` if there is none.
    pub(crate) fn mac(&self) -> Option<MacAddress> {
        arp::mac(&self.hardware)
    }
}

/// A notification of the device: the result of an operation on an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Notification {
    /// The time of the operation, on the clock of the device.
    pub(crate) timestamp: String,
    /// The name of the application.
    pub(crate) app_id: String,
    /// The result of the operation: `im-app-fail` for a failure.
    pub(crate) status: String,
    /// The explanation of the result, in words.
    pub(crate) message: String,
}

impl Notification {
    /// Returns `true` if the notification reports a failure of the application `id`.
    pub(crate) fn is_failure(&self, id: &str) -> bool {
        self.app_id == id && self.status == "im-app-fail"
    }

    /// Returns `true` if the message of the notification says that something is not supported.
    pub(crate) fn is_unsupported(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        message.contains("not supported") || message.contains("unsupported")
    }
}

/// The global state of app hosting.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Globals {
    /// `true` if app hosting (IOx) is enabled on the device.
    pub(crate) iox_enabled: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_whose_amounts_are_no_lists_are_rejected() {
        let read =
            |cpu: Value| serde_json::from_value::<OperData>(json!({ "app-resources": [{ "cpu": cpu }] }));
        assert!(read(json!([{ "quota-unit": 7 }])).is_ok());
        assert!(read(json!({ "quota-unit": 7 })).is_err());
    }

    #[test]
    fn what_cannot_be_read_of_one_application_hides_no_other_one() {
        let reported = |message: Value| json!({ "app-id": "a", "status": "im-app-fail", "message": message });
        let data = json!({
            "app": [
                { "name": "odd", "details": { "state": "RUNNING" }, "network-interfaces": null },
                { "name": "mute", "details": null },
                { "name": null },
                { "name": "a", "details": { "state": "DEPLOYED" } },
            ],
            "app-notifications": [reported(json!(null)), reported(json!(7)), json!(null), reported(json!("no room"))],
        });
        let read: OperData = serde_json::from_value(data).unwrap();
        let states: Vec<_> = read.apps.iter().map(|app| (&*app.name, &*app.state)).collect();
        assert_eq!(states, [("odd", "RUNNING"), ("mute", ""), ("a", "DEPLOYED")]);
        let messages: Vec<_> = read.notifications.iter().map(|reported| &*reported.message).collect();
        assert_eq!(messages, ["no room"]);
    }

    #[test]
    fn a_number_is_read_in_both_forms_and_what_is_none_is_absent() {
        let read = |json: &str| number(&serde_json::from_str(json).unwrap());
        assert_eq!(
            (read("7"), read("\"7\""), read("\" 18446744073709551615\"")),
            (Some(7), Some(7), Some(u64::MAX))
        );
        for none in ["\"18446744073709551616\"", "-1", "1.5", "\"\"", "null", "{}", "\"0.00 %\""] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
