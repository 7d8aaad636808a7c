//! The cells of a table.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{is_empty, list, meta, terminating};

const NONE: &str = "<none>";

pub(super) fn name(object: &Value, _: Timestamp) -> Value {
    meta(object, "name").into()
}

/// A text, or `<none>`.
pub(super) fn text(value: &Value) -> Value {
    if is_empty(value) { NONE.into() } else { value.clone() }
}

/// A number that reads as 0 where it is absent.
pub(super) fn count(value: &Value) -> Value {
    value.as_i64().unwrap_or_default().into()
}

/// The number of entries of a map.
pub(super) fn size(value: &Value) -> Value {
    value.as_object().map_or(0, serde_json::Map::len).into()
}

/// Labels as a selector is written.
pub(super) fn labels(value: &Value) -> Value {
    let labels = value.as_object().into_iter().flatten();
    joined(labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(meta(object, "creationTimestamp"), now)
}

fn since(time: &str, now: Timestamp) -> Value {
    let Ok(then) = time.parse::<Timestamp>() else { return "<unknown>".into() };
    duration(now.duration_since(then).as_secs().max(0)).into()
}

/// A span of time in its two leading units, as long as the second matters.
fn duration(seconds: i64) -> String {
    let two = |large: i64, name: char, small: i64, small_name: char| {
        if small == 0 { format!("{large}{name}") } else { format!("{large}{name}{small}{small_name}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if seconds < 600 => two(minutes, 'm', seconds % 60, 's'),
        () if seconds < 10_800 => format!("{minutes}m"),
        () if seconds < 28_800 => two(hours, 'h', minutes % 60, 'm'),
        () if seconds < 172_800 => format!("{hours}h"),
        () if seconds < 691_200 => two(days, 'd', hours % 24, 'h'),
        () if seconds < 63_072_000 => format!("{days}d"),
        () => two(days / 365, 'y', days % 365, 'd'),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> Value {
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { NONE.into() } else { parts.join(",").into() }
}

pub(super) fn pod_ready(pod: &Value, _: Timestamp) -> Value {
    let ready = list(&pod["status"]["containerStatuses"]).iter().filter(|status| status["ready"] == true);
    format!("{}/{}", ready.count(), list(&pod["spec"]["containers"]).len()).into()
}

pub(super) fn pod_status(pod: &Value, _: Timestamp) -> Value {
    if terminating(pod) {
        return "Terminating".into();
    }
    let waits = list(&pod["status"]["containerStatuses"])
        .iter()
        .find_map(|status| status["state"]["waiting"]["reason"].as_str());
    waits.or(pod["status"]["reason"].as_str()).or(pod["status"]["phase"].as_str()).unwrap_or_default().into()
}

pub(super) fn pod_restarts(pod: &Value, _: Timestamp) -> Value {
    let counts = list(&pod["status"]["containerStatuses"]).iter().filter_map(|s| s["restartCount"].as_i64());
    counts.sum::<i64>().into()
}

pub(super) fn external_ip(service: &Value, _: Timestamp) -> Value {
    let spec = &service["spec"];
    let balanced = list(&service["status"]["loadBalancer"]["ingress"]).iter();
    let balanced = balanced.filter_map(|ingress| ingress["ip"].as_str().or(ingress["hostname"].as_str()));
    let fixed = list(&spec["externalIPs"]).iter().filter_map(Value::as_str);
    match spec["type"].as_str() {
        Some("ExternalName") => text(&spec["externalName"]),
        Some("LoadBalancer") => {
            let all = joined(balanced.chain(fixed).map(Into::into));
            if all == NONE { "<pending>".into() } else { all }
        }
        _ => joined(fixed.map(Into::into)),
    }
}

pub(super) fn service_ports(service: &Value, _: Timestamp) -> Value {
    joined(list(&service["spec"]["ports"]).iter().map(|port| {
        let node = port["nodePort"].as_u64().map(|node| format!(":{node}")).unwrap_or_default();
        format!("{}{node}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"))
    }))
}

pub(super) fn replicas_ready(object: &Value, _: Timestamp) -> Value {
    let (ready, wanted) = (count(&object["status"]["readyReplicas"]), count(&object["spec"]["replicas"]));
    format!("{ready}/{wanted}").into()
}

pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = list(&node["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let ready = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node["spec"]["unschedulable"] == true {
        format!("{ready},SchedulingDisabled").into()
    } else {
        ready.into()
    }
}

pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    joined(labels.filter_map(|(name, _)| name.strip_prefix("node-role.kubernetes.io/").map(Into::into)))
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    joined(list(&object["subsets"]).iter().flat_map(|subset| {
        list(&subset["addresses"]).iter().flat_map(|address| {
            let ip = address["ip"].as_str().unwrap_or_default();
            list(&subset["ports"]).iter().map(move |port| format!("{ip}:{}", port["port"]))
        })
    }))
}

pub(super) fn slice_ports(slice: &Value, _: Timestamp) -> Value {
    let ports = list(&slice["ports"]).iter();
    let ports: Vec<_> = ports.map(|port| port["port"].to_string()).collect();
    if ports.is_empty() { "<unset>".into() } else { ports.join(",").into() }
}

pub(super) fn slice_endpoints(slice: &Value, _: Timestamp) -> Value {
    let addresses = list(&slice["endpoints"]).iter().flat_map(|endpoint| list(&endpoint["addresses"]));
    joined(addresses.filter_map(Value::as_str).map(Into::into))
}

pub(super) fn last_seen(event: &Value, now: Timestamp) -> Value {
    let times = ["lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"];
    let series = event["series"]["lastObservedTime"].as_str();
    let time = series.or_else(|| times.iter().find_map(|field| event[*field].as_str()));
    since(time.unwrap_or(meta(event, "creationTimestamp")), now)
}

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = if event["regarding"].is_object() { &event["regarding"] } else { &event["involvedObject"] };
    let text = |field: &str| about[field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind").to_lowercase(), text("name")).into()
}

pub(super) fn event_message(event: &Value, _: Timestamp) -> Value {
    let message = event["message"].as_str().or(event["note"].as_str());
    message.unwrap_or_default().trim().into()
}

/// A column that a `CustomResourceDefinition` declares: a JSON path of plain fields, `.spec.name`.
pub(super) fn declared(column: &Value, object: &Value, now: Timestamp) -> Value {
    let path = column["jsonPath"].as_str().unwrap_or_default();
    let value = path.split('.').filter(|step| !step.is_empty()).fold(object, |value, step| &value[step]);
    match (column["type"].as_str(), value) {
        (Some("date"), Value::String(time)) => since(time, now),
        (_, Value::Null) => json!(null),
        (Some("string"), Value::String(text)) => text.as_str().into(),
        (Some("string"), other) => other.to_string().into(),
        (_, other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_was_last_seen_when_its_series_was() {
        let event = json!({"eventTime": "1970-01-01T00:00:00.000000Z"});
        assert_eq!(last_seen(&event, Timestamp::from_second(90).unwrap()), "90s");
        let mut again = event;
        again["series"] = json!({"count": 2, "lastObservedTime": "1970-01-01T00:01:00.000000Z"});
        assert_eq!(last_seen(&again, Timestamp::from_second(90).unwrap()), "30s");
    }

    #[test]
    fn durations_get_coarser_with_time() {
        for (seconds, reads) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (700, "11m"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (65_000_000, "2y22d"),
        ] {
            assert_eq!(duration(seconds), reads);
        }
    }
}
