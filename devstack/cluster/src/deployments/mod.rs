//! The controller of Deployments: it keeps one `ReplicaSet` for the current template, and scales down those of earlier templates
//! step by step.

mod rollout;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use crate::call::Call;
use crate::names::suffix;
use crate::owners::{controlled_by, created, dependents};
use crate::replicasets::wanted;
use crate::shell::Plan;

/// The label by which the pods of one template are told from those of another.
const HASH: &str = "pod-template-hash";

/// The default number of old replica sets kept.
const HISTORY: i32 = 10;

/// Returns the calls that are due for all deployments.
pub(crate) fn plan(deployments: &[Arc<Deployment>], sets: &[Arc<ReplicaSet>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for deployment in deployments {
        plan.extend(plan_one(deployment, dependents(&**deployment, sets), now));
    }
    plan
}

fn plan_one(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>, now: Timestamp) -> Vec<Call> {
    let Some(spec) = &deployment.spec else { return Vec::new() };
    let present = |set: &Arc<ReplicaSet>| template_of(set).as_ref() == Some(&spec.template);
    let (new, mut old): (Vec<_>, Vec<_>) = sets.into_iter().partition(present);
    old.sort_by_cached_key(|set| created(&**set));
    let new = new.into_iter().min_by_key(|set| created(&**set));
    let mut calls = Vec::new();
    if deployment.metadata.deletion_timestamp.is_none() {
        match &new {
            None => calls.push(Call::create(&new_set(deployment, &spec.template))),
            Some(new) => calls.extend(
                rollout::scale(spec, new, &old)
                    .into_iter()
                    .map(|(set, replicas)| Call::patch(set, json!({ "spec": { "replicas": replicas } }))),
            ),
        }
        calls.extend(forgotten(spec.revision_history_limit, &old).map(|set| Call::delete(&**set, None)));
    }
    let status = status::status(deployment, new.as_deref(), &old, now);
    if deployment.status.as_ref() != Some(&status) {
        calls.push(Call::status(deployment, status));
    }
    calls
}

/// The template without the label that its replica set added.
fn template_of(set: &ReplicaSet) -> Option<PodTemplateSpec> {
    let mut template = set.spec.as_ref()?.template.clone()?;
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(HASH);
    }
    Some(template)
}

/// A replica set that wants no pods yet; how many, says the rollout.
fn new_set(deployment: &Deployment, template: &PodTemplateSpec) -> ReplicaSet {
    let digest = suffix(json!(template).to_string(), 10);
    let mut template = template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.into(), digest.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    selector.match_labels.get_or_insert_default().insert(HASH.into(), digest.clone());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{digest}", deployment.name_any())),
            namespace: deployment.namespace(),
            labels: Some(labels),
            owner_references: Some(controlled_by(deployment)),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            selector,
            template: Some(template),
            ..ReplicaSetSpec::default()
        }),
        status: None,
    }
}

/// The oldest of the replica sets that are empty, beyond as many as are to be kept.
fn forgotten(limit: Option<i32>, old: &[Arc<ReplicaSet>]) -> impl Iterator<Item = &Arc<ReplicaSet>> {
    let empty = |set: &&Arc<ReplicaSet>| {
        let gone = set.status.as_ref().is_some_and(|status| status.replicas == 0);
        wanted(set) == 0 && gone && set.metadata.deletion_timestamp.is_none()
    };
    let keep = usize::try_from(limit.unwrap_or(HISTORY)).unwrap_or(0);
    let count = old.iter().filter(empty).count();
    old.iter().filter(empty).take(count.saturating_sub(keep))
}

#[cfg(test)]
mod tests;
