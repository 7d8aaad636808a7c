//! A digest of the parts of a pod that affect its containers.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;

/// Returns a digest of all fields of the pod's containers (image, command, resources and so on) and of
/// `activeDeadlineSeconds`. Labels, annotations and tolerations are not included, because they do not affect the
/// containers. The digest is compared only within one process.
pub(crate) fn form(pod: &Pod) -> u64 {
    let mut digest = DefaultHasher::new();
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    for container in containers {
        // The one text form that both a fresh and a decoded container share.
        serde_json::to_string(container).unwrap_or_default().hash(&mut digest);
    }
    spec.and_then(|spec| spec.active_deadline_seconds).hash(&mut digest);
    digest.finish()
}
