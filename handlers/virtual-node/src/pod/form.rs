//! The form of a pod: what of it makes it run otherwise when it changes.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;

/// A digest of the containers of a pod (images, commands, resources and whatever else a container is made of) and of its deadline,
/// which its machine has to enforce too. Labels, annotations and tolerations are not its form: they change nothing of what runs.
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
