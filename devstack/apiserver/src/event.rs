//! Validation of Events. The rules of events.k8s.io are stricter than those of core/v1: recorded fields are immutable there.

use serde_json::Value;

use crate::object::{is_empty, meta};
use crate::status::Cause;
use crate::table::Resource;
use crate::validate::is_qualified_name;

/// The longest reportingInstance, action, reason and message, in bytes.
const LONGEST: [(&str, usize); 4] =
    [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// The fields that an Event with an event time requires.
const REQUIRED: [&str; 4] = ["reportingComponent", "reportingInstance", "action", "reason"];

/// The deprecated fields that a new Event must leave empty.
const OLD: [(&str, &str); 4] = [
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("source", "source.component"),
];

/// The immutable fields.
const IMMUTABLE: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Validates a new Event, as it is stored.
pub(crate) fn created(resource: &Resource, event: &Value) -> Vec<Cause> {
    let mut causes = any(resource, event);
    if is_newer(resource) {
        if is_empty(&event["eventTime"]) {
            causes.push(Cause::required("eventTime", ""));
        }
        if !["Normal", "Warning"].contains(&event["type"].as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("type", &"".into(), "has invalid value"));
        }
        let old = OLD.iter().filter(|(field, _)| !is_empty(&event[*field]));
        causes.extend(old.map(|(_, named)| Cause::invalid(named, &"".into(), "needs to be unset")));
        causes.extend(series(event));
    }
    causes
}

/// Validates an update of an Event.
pub(crate) fn updated(resource: &Resource, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = any(resource, new);
    if is_newer(resource) {
        if old["series"] != new["series"] {
            causes.extend(series(new));
        }
        let changed = IMMUTABLE.iter().filter(|field| old[**field] != new[**field]);
        causes.extend(
            changed.map(|field| Cause::invalid(shown(resource, field), &new[*field], "field is immutable")),
        );
    }
    causes
}

/// Validates any Event.
fn any(resource: &Resource, event: &Value) -> Vec<Cause> {
    let (namespace, about) = (meta(event, "namespace"), &event["involvedObject"]["namespace"]);
    let elsewhere = || Cause::invalid("involvedObject.namespace", about, "does not match event.namespace");
    let about = about.as_str().unwrap_or_default();
    let mut causes = Vec::new();
    if is_empty(&event["eventTime"]) {
        if about != namespace && !(about.is_empty() && namespace == "default") {
            causes.push(elsewhere());
        }
        return causes;
    }
    if about.is_empty() && !["default", "kube-system"].contains(&namespace) {
        causes.push(elsewhere());
    }
    for field in REQUIRED.iter().filter(|field| is_empty(&event[**field])) {
        causes.push(Cause::required(shown(resource, field), ""));
    }
    let controller = event["reportingComponent"].as_str().unwrap_or_default();
    if !is_qualified_name(controller) {
        let why = "name part must consist of alphanumeric characters, '-', '_' or '.'";
        causes.push(Cause::invalid(shown(resource, "reportingComponent"), &controller.into(), why));
    }
    for (field, longest) in LONGEST {
        if event[field].as_str().is_some_and(|text| text.len() > longest) {
            causes.push(Cause::invalid(field, &"".into(), &format!("can have at most {longest} characters")));
        }
    }
    causes
}

fn series(event: &Value) -> Option<Cause> {
    let series = &event["series"];
    if series.is_object() && series["count"].as_i64().unwrap_or_default() < 2 {
        return Some(Cause::invalid("series.count", &"".into(), "should be at least 2"));
    }
    let timeless = series.is_object() && is_empty(&series["lastObservedTime"]);
    timeless.then(|| Cause::required("series.lastObservedTime", ""))
}

fn is_newer(resource: &Resource) -> bool {
    resource.group == "events.k8s.io"
}

/// The reporter's field is named after the group that was asked; all others as they are stored.
fn shown<'a>(resource: &Resource, field: &'a str) -> &'a str {
    if field == "reportingComponent" && is_newer(resource) { "reportingController" } else { field }
}
