//! The JSON of the modules (`biz`) of a base.

use jiff::{Timestamp, civil, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use staffetta_driver::tunnel::{ContainerState, ContainerStatusData, PodKey, UNKNOWN_STATE};

use super::{message, reason};
use crate::module;

/// The main class of the base itself, which older versions of Arklet list as a module.
const BASE_MAIN_CLASS: &str = "embed main";

/// A module of a base, in either JSON form of Arklet: `ArkBizInfo`, or `SimpleBiz` with its shorter keys.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BizInfo {
    #[serde(alias = "name")]
    biz_name: String,
    #[serde(alias = "version")]
    biz_version: String,
    #[serde(alias = "state")]
    biz_state: String,
    #[serde(default)]
    main_class: Option<String>,
    #[serde(default)]
    biz_state_records: Option<Vec<StateRecord>>,
    #[serde(default)]
    latest_state_record: Option<StateRecord>,
}

/// A change of a module's state.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StateRecord {
    change_time: Option<ChangeTime>,
    reason: Option<String>,
    message: Option<String>,
}

/// The time of a change: milliseconds since 1970, or a text of the form `2024-09-05 08:00:00.000` in UTC.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ChangeTime {
    /// A number of milliseconds since 1970.
    Milliseconds(i64),
    /// A text of the form `2024-09-05 08:00:00.000`, in UTC.
    Text(String),
}

impl StateRecord {
    /// Returns the time of the change; `None` if it is missing or malformed.
    fn time(&self) -> Option<Timestamp> {
        match self.change_time.as_ref()? {
            ChangeTime::Milliseconds(since) => Timestamp::from_millisecond(*since).ok(),
            ChangeTime::Text(text) => {
                let time = civil::DateTime::strptime("%Y-%m-%d %H:%M:%S%.f", text).ok()?;
                time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
            }
        }
    }
}

/// The states of a module (`BizState`), which versions of Arklet write in different case.
const STATES: [(&str, ContainerState); 6] = [
    ("UNRESOLVED", ContainerState::Unresolved),
    ("RESOLVED", ContainerState::Resolved),
    ("ACTIVATED", ContainerState::Activated),
    ("DEACTIVATED", ContainerState::Deactivated),
    ("BROKEN", ContainerState::Broken),
    ("STOPPED", ContainerState::Stopped),
];

/// Parses the state of a module, in upper, lower or mixed case; `None` if there is no such state.
fn state(text: &str) -> Option<ContainerState> {
    STATES.into_iter().find_map(|(name, state)| name.eq_ignore_ascii_case(text).then_some(state))
}

/// Returns the statuses of the modules of a base. A module without the time of a state change gets the time `now`, that of the report. The
/// base itself and modules with a malformed name or version are left out, because no container of a pod can be one of these.
pub(crate) fn statuses(modules: Vec<BizInfo>, now: Timestamp) -> Vec<ContainerStatusData> {
    modules.into_iter().filter_map(|module| status(module, now)).collect()
}

/// Converts a module that a base reports; `None` for the base itself and for a name or version that no pod can have. If no state change has
/// a valid time, the time is `now`. An unknown state becomes [`ContainerState::Deactivated`] with the reason [`UNKNOWN_STATE`], and with its
/// first 64 characters in the message.
fn status(info: BizInfo, now: Timestamp) -> Option<ContainerStatusData> {
    let base = info.main_class.as_deref() == Some(BASE_MAIN_CLASS);
    if base || !module::is_name(&info.biz_name) || !module::is_name(&info.biz_version) {
        return None;
    }
    let records = info.biz_state_records.into_iter().flatten().chain(info.latest_state_record);
    let latest = records.max_by_key(StateRecord::time).unwrap_or_default();
    let (state, reason, message) = if let Some(state) = state(&info.biz_state) {
        (state, latest.reason.as_deref().map(reason), latest.message.as_deref().map(message))
    } else {
        let unknown: String = message(&info.biz_state).chars().take(64).collect();
        (
            ContainerState::Deactivated,
            Some(UNKNOWN_STATE.to_owned()),
            Some(format!("unknown state {unknown:?}")),
        )
    };
    Some(ContainerStatusData {
        key: module::key(&info.biz_name, &info.biz_version),
        name: info.biz_name,
        pod_key: PodKey::All,
        state,
        change_time: Time(latest.time().unwrap_or(now)),
        reason: reason.unwrap_or_default(),
        message: message.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(modules: Value) -> Vec<ContainerStatusData> {
        statuses(serde_json::from_value(modules).unwrap(), Timestamp::from_second(7).unwrap())
    }

    #[test]
    fn a_module_has_the_state_of_its_latest_record_whichever_form_it_comes_in() {
        let statuses = read(json!([
            { "bizName": "cart", "bizVersion": "1", "bizState": "ACTIVATED", "webContextPath": "/cart", "bizStateRecords": [
                { "changeTime": "2024-09-05 08:00:01.500", "state": "ACTIVATED", "reason": "Started", "message": "up" },
                { "changeTime": "2024-09-05 08:00:00.000", "state": "RESOLVED", "reason": "Loaded" },
            ] },
            { "name": "search", "version": "2", "state": "broken",
              "latestStateRecord": { "changeTime": 1_725_523_201_500_i64, "state": "BROKEN", "message": "no\nroom" } },
            { "bizName": "plain", "bizVersion": "1", "bizState": "RESOLVED", "bizStateRecords": null },
        ]));
        let time = "2024-09-05T08:00:01.5Z".parse().unwrap();
        let seen: Vec<_> =
            statuses.iter().map(|status| (status.key.as_str(), status.state, status.change_time.0)).collect();
        assert_eq!(
            seen,
            [
                ("cart:1", ContainerState::Activated, time),
                ("search:2", ContainerState::Broken, time),
                ("plain:1", ContainerState::Resolved, Timestamp::from_second(7).unwrap()),
            ]
        );
        assert_eq!((statuses[0].reason.as_str(), statuses[0].message.as_str()), ("Started", "up"));
        assert_eq!(statuses[1].message, "no room");
    }

    #[test]
    fn what_no_container_can_be_is_left_out_and_a_module_in_an_unknown_state_is_left_alone() {
        let module =
            |name: &str, state: &str| json!({ "bizName": name, "bizVersion": "1", "bizState": state });
        let base =
            json!({ "bizName": "b", "bizVersion": "1", "bizState": "ACTIVATED", "mainClass": "embed main" });
        let statuses =
            read(json!([module("a:b", "ACTIVATED"), module("", "ACTIVATED"), base, module("odd", "asleep")]));
        assert_eq!(statuses.len(), 1);
        assert_eq!(
            (statuses[0].state, statuses[0].reason.as_str(), statuses[0].message.as_str()),
            (ContainerState::Deactivated, "UnknownState", "unknown state \"asleep\"")
        );
    }

    #[test]
    fn a_state_is_read_in_any_case() {
        for (name, expected) in STATES {
            let mixed = format!("{}{}", &name[..1], name[1..].to_lowercase());
            for text in [name, &name.to_lowercase(), &mixed] {
                assert_eq!(state(text), Some(expected), "{text}");
            }
        }
        assert_eq!(state("asleep"), None);
    }

    #[test]
    fn a_time_that_cannot_be_read_is_that_of_the_report() {
        for time in [json!("yesterday"), json!(i64::MAX), json!(null)] {
            let record =
                json!([{ "changeTime": time, "reason": "not one word", "message": "x".repeat(5000) }]);
            let module = json!([{ "bizName": "cart", "bizVersion": "1", "bizState": "BROKEN", "bizStateRecords": record }]);
            let status = &read(module)[0];
            assert_eq!(status.change_time.0.as_second(), 7);
            assert_eq!((status.reason.as_str(), status.message.len()), ("", 1024));
        }
    }
}
