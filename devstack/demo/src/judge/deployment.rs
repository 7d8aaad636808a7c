//! Checks deployments.

use k8s_openapi::api::apps::v1::Deployment;

use super::{going, name};

/// Returns the reason why the deployment is not complete.
pub(super) fn reason(deployment: &Deployment) -> Option<String> {
    going(deployment)
        .or_else(|| fault(deployment))
        .map(|what| format!("the deployment {} {what}", name(deployment)))
}

/// The wanted number of pods.
pub(super) fn goal(deployment: &Deployment) -> usize {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

fn fault(deployment: &Deployment) -> Option<String> {
    let wanted = goal(deployment);
    let status = deployment.status.clone().unwrap_or_default();
    let counts = [status.replicas, status.updated_replicas, status.available_replicas];
    let counts = counts.map(|count| usize::try_from(count.unwrap_or(0)).unwrap_or(0));
    if status.observed_generation != deployment.metadata.generation {
        return Some("was not looked at since it changed".into());
    }
    let [all, updated, available] = counts;
    let what =
        || format!("has {all} pods, {updated} of them new and {available} available, instead of {wanted}");
    (counts != [wanted; 3]).then(what)
}
