//! The status of a Deployment, on which `kubectl rollout status` and `kubectl wait` rely.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

pub(super) fn status(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let goal = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let sets = || new.into_iter().chain(old.iter().map(|set| &**set)).filter_map(|set| set.status.as_ref());
    let replicas: i32 = sets().map(|status| status.replicas).sum();
    let ready = sets().filter_map(|status| status.ready_replicas).sum();
    let available = sets().filter_map(|status| status.available_replicas).sum();
    let updated = new.and_then(|set| set.status.as_ref()).map_or(0, |status| status.replicas);
    let unavailable = goal.max(replicas) - available;
    let enough = if available >= goal {
        condition("Available", "True", "MinimumReplicasAvailable", "Enough pods are available.")
    } else {
        condition("Available", "False", "MinimumReplicasUnavailable", "Not enough pods are available.")
    };
    let progress = if updated == goal && replicas == goal && available >= goal {
        condition("Progressing", "True", "NewReplicaSetAvailable", "All pods are as they should be.")
    } else {
        condition("Progressing", "True", "ReplicaSetUpdated", "Pods come and go.")
    };
    let before = deployment.status.clone().unwrap_or_default();
    let dated = [enough, progress].map(|condition| date(condition, before.conditions.as_deref(), now));
    DeploymentStatus {
        replicas: Some(replicas),
        updated_replicas: Some(updated),
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        unavailable_replicas: Some(unavailable),
        observed_generation: deployment.metadata.generation,
        conditions: Some(dated.into()),
        ..before
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        ..DeploymentCondition::default()
    }
}

/// The times of the condition, which stay as they are when it says what it said before.
fn date(
    condition: DeploymentCondition,
    before: Option<&[DeploymentCondition]>,
    now: Timestamp,
) -> DeploymentCondition {
    let said = before.into_iter().flatten().find(|said| said.type_ == condition.type_);
    let now = Some(Time(now));
    let changed = said
        .filter(|said| said.status == condition.status)
        .and_then(|said| said.last_transition_time.clone());
    let updated =
        said.filter(|said| said.reason == condition.reason).and_then(|said| said.last_update_time.clone());
    DeploymentCondition {
        last_transition_time: changed.or_else(|| now.clone()),
        last_update_time: updated.or(now),
        ..condition
    }
}
