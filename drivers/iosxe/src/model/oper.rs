//! The module `Cisco-IOS-XE-app-hosting-oper`: the operational state of applications.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use staffetta_driver::MacAddress;

use super::arp;

/// The container `app-hosting-oper-data`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OperData {
    #[serde(rename = "app", deserialize_with = "apps")]
    pub(crate) apps: Vec<App>,
    /// The device's resources for applications.
    #[serde(rename = "app-resources", deserialize_with = "resources")]
    pub(crate) resources: Vec<Value>,
    #[serde(rename = "app-notifications", deserialize_with = "readable")]
    pub(crate) notifications: Vec<Notification>,
    #[serde(rename = "app-globals")]
    pub(crate) globals: Option<Globals>,
}

/// Reads the resources. A resource whose amounts are not lists is rejected: it would look like a device without resources.
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

/// The applications that have a name. A part that cannot be read, of an application of others, hides no other part.
fn apps<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<App>, D::Error> {
    Ok(Vec::<Value>::deserialize(list)?.iter().filter_map(App::read).collect())
}

/// The entries of a list that can be read.
fn readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Value>::deserialize(list)?.iter().filter_map(|entry| T::deserialize(entry).ok()).collect())
}

/// An application.
#[derive(Debug, Default)]
pub(crate) struct App {
    pub(crate) name: String,
    /// The state in the device's own word.
    pub(crate) state: String,
    pub(crate) interfaces: Vec<AppInterface>,
    /// The reserved units of CPU.
    pub(crate) cpu: Option<u64>,
    /// The reserved memory, in MB.
    pub(crate) memory: Option<u64>,
    /// The reserved disk, in MB.
    pub(crate) disk: Option<u64>,
    /// The used CPU, in percent of the reservation.
    pub(crate) used_cpu: Option<u64>,
    /// The used memory, in KB.
    pub(crate) used_memory: Option<u64>,
    /// The used storage, in blocks of a thousand bytes.
    pub(crate) used_storage: Option<u64>,
    pub(crate) received_bytes: Option<u64>,
    pub(crate) sent_bytes: Option<u64>,
}

impl App {
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

/// A number, or a string that is one: RFC 7951 requires strings for 64 bits, and not every device writes them.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The sum of a leaf over the entries of a list; `None` if none of them has it.
pub(crate) fn total(list: &Value, leaf: &str) -> Option<u64> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| number(&entry[leaf])).reduce(u64::saturating_add)
}

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
    /// The address that it reports; `0.0.0.0` is none.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let texts = [&self.ipv4, &self.ipv6];
        let mut addresses = texts.into_iter().filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.find(|address| !address.is_unspecified())
    }

    pub(crate) fn mac(&self) -> Option<MacAddress> {
        arp::mac(&self.hardware)
    }
}

/// The outcome of an operation on an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Notification {
    pub(crate) timestamp: String,
    pub(crate) app_id: String,
    pub(crate) status: String,
    pub(crate) message: String,
}

impl Notification {
    /// Returns `true` if the notification reports a failure of this application.
    pub(crate) fn is_failure(&self, id: &str) -> bool {
        self.app_id == id && self.status == "im-app-fail"
    }

    /// Returns `true` if the notification reports that the device does not support the operation.
    pub(crate) fn is_unsupported(&self) -> bool {
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
