//! Rules for pods only: binding to a node, and graceful deletion.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Cluster;
use crate::object::{Key, list, map_mut, meta, meta_mut, seconds};
use crate::status::Status;
use crate::table::Resource;

/// Counts one change of what is wanted.
pub(super) fn next_generation(object: &mut Value) {
    let metadata = meta_mut(object);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
        metadata.insert("generation".into(), json!(generation + 1));
    }
}

/// The effect of a graceful DELETE on a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grace {
    /// The deletion was asked for before, and this request does not hasten it.
    Pending,
    /// The pod ends after this many seconds; its metadata says so now.
    Owned(i64),
}

/// Marks a pod as terminating, or hastens its end. `asked` is the grace period of the request.
pub(super) fn mark(pod: &mut Value, asked: Option<i64>, now: Timestamp) -> Grace {
    let terminating = crate::object::terminating(pod);
    let current = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    if terminating && asked.is_none_or(|asked| asked >= current) {
        return Grace::Pending;
    }
    let period = if terminating { asked.unwrap_or_default().max(0) } else { first_period(pod, asked) };
    let began = if terminating {
        let deadline =
            pod["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        deadline.unwrap_or(now).saturating_sub(SignedDuration::from_secs(current)).unwrap_or(now)
    } else {
        next_generation(pod);
        now
    };
    let deadline = began.saturating_add(SignedDuration::from_secs(period)).unwrap_or(now);
    let metadata = meta_mut(pod);
    metadata.insert("deletionTimestamp".into(), seconds(deadline).into());
    metadata.insert("deletionGracePeriodSeconds".into(), period.into());
    Grace::Owned(period)
}

/// Nobody has to stop a pod that has no node or is finished.
fn first_period(pod: &Value, asked: Option<i64>) -> i64 {
    let finished = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() || finished {
        return 0;
    }
    let period = asked.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or_default();
    if period < 0 { 1 } else { period }
}

impl Cluster {
    /// POST to `pods/binding`: gives the pod its node. With `dry_run` the answer is the same and nothing is stored.
    pub(crate) fn bind(
        &mut self,
        pods: &Resource,
        at: &Key,
        binding: &Value,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<Value, Status> {
        if meta(binding, "name") != at.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(Status::unexplained("target.name: Required value: the name of a node"));
        }
        let mut pod = Value::clone(self.get(pods, at)?);
        let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && pod["metadata"]["uid"] != uid {
            return Err(Status::conflict(pods, &at.name, "the uid in the binding is not that of the pod"));
        }
        if crate::object::terminating(&pod) {
            let why = format!("pod {} is being deleted, cannot be assigned to a host", at.name);
            return Err(Status::conflict(pods, &at.name, &why));
        }
        if let Some(present) = pod["spec"]["nodeName"].as_str().filter(|present| !present.is_empty()) {
            let why = format!("pod {} is already assigned to node {present:?}", at.name);
            return Err(Status::conflict(pods, &at.name, &why));
        }
        pod["spec"]["nodeName"] = node.into();
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": seconds(now),
        });
        let status = map_mut(map_mut(&mut pod).entry("status").or_insert(Value::Null));
        let mut conditions = list(status.get("conditions").unwrap_or(&Value::Null)).to_vec();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(scheduled);
        status.insert("conditions".into(), conditions.into());
        for (name, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            map_mut(meta_mut(&mut pod).entry("annotations").or_insert(Value::Null))
                .insert(name.clone(), value.clone());
        }
        if !dry_run {
            self.put(&pods.stored_as, at, pod);
        }
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }
}
