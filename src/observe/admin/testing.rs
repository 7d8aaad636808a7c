//! Support for the tests of the status page.

use serde_json::{Value, json};

use crate::observe::state::StateSnapshot;

/// Returns the state of a controller with these objects, which fail for one reason.
pub(super) fn snapshot(objects: &Value) -> StateSnapshot {
    let count = objects.as_array().map_or(0, Vec::len);
    let problem = json!({ "reason": "QuotaExceeded", "handler": "vif", "objects": count, "since": "2026-01-01T00:00:00Z",
        "sinceSeconds": 185.0, "example": "Pod shop/web-1", "error": objects[0]["lastError"]["error"],
        "remedy": "raise it, or release resources" });
    let problems = if count == 0 { vec![] } else { vec![problem] };
    serde_json::from_value(json!({
        "version": "0.1.0", "identity": "web-1_<i>", "started": "2026-01-01T00:00:00Z",
        "leadership": { "name": "staffetta", "leads": true, "role": "leader", "slowRenewals": 0 },
        "uptimeSeconds": 7260.0, "ready": true, "waits": [],
        "watches": [{ "kind": "Pod", "listed": true, "objects": 3, "undecodable": 0, "added": 3, "modified": 2,
            "deleted": 0, "lists": 1, "errors": 0, "said": null, "silentSeconds": 1.0, "seconds": 120.0, "error": null }],
        "handlers": [{ "name": "vif", "kinds": ["Pod"], "open": true, "waits": [], "held": 0, "queued": 0, "running": 0,
            "retrying": 0, "failed": 0 }],
        "problems": problems, "objects": objects, "omitted": 0, "undecodable": [],
    }))
    .unwrap()
}

/// Returns a pod that fails with `error`.
pub(super) fn failing(error: &str) -> Value {
    json!({ "handler": "vif", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u", "change": "added",
        "phase": "failed", "since": "2026-01-01T00:00:00Z", "sinceSeconds": 2.0, "next": null, "nextSeconds": 30.0,
        "lastError": { "error": error, "reason": "QuotaExceeded", "attempts": 4, "since": "2026-01-01T00:00:00Z",
            "sinceSeconds": 185.0 } })
}
