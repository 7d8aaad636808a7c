//! Support for the tests of the commands that show the state of a controller.

use serde_json::json;

use crate::observe::state::{ObjectSummary, StateSnapshot};

/// Returns the state of a healthy controller with these objects.
pub(in crate::operate::cli) fn document(objects: Vec<ObjectSummary>) -> StateSnapshot {
    let mut document: StateSnapshot = serde_json::from_value(json!({
        "version": "0.1.0", "identity": "web-1", "started": "2026-11-21T14:00:00.000Z", "uptimeSeconds": 3723.0,
        "leadership": { "name": "staffetta", "leads": true, "role": "leader", "slowRenewals": 0 },
        "ready": true, "waits": [], "watches": [], "objects": [], "omitted": 0, "undecodable": [],
        "handlers": [{ "name": "vif", "open": true, "waits": [],
            "held": 0, "queued": 0, "running": 0, "retrying": 0, "failed": 0 }],
    }))
    .unwrap();
    document.objects = objects;
    document
}

/// Returns a pod that has been in `phase` for `seconds`.
pub(in crate::operate::cli) fn object(
    name: &str,
    phase: &str,
    seconds: f64,
    error: Option<&str>,
) -> ObjectSummary {
    let since = "2026-11-21T14:00:00.000Z";
    let last_error = error.map(|error| {
        json!({ "error": error, "reason": "NoAddress", "attempts": 3, "since": since, "sinceSeconds": seconds })
    });
    serde_json::from_value(json!({
        "handler": "vif", "kind": "Pod", "namespace": "default", "name": name, "uid": "u1", "change": "added",
        "phase": phase, "since": since, "sinceSeconds": seconds, "lastError": last_error,
        "next": error.map(|_| since), "nextSeconds": error.map(|_| 30.0),
    }))
    .unwrap()
}
