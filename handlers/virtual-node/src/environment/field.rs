//! The values of pod fields in environment variables (`fieldRef`).

use k8s_openapi::api::core::v1::Pod;

/// Returns the value of the pod field at `path` (for example `metadata.labels['app']`); `None` if the field does not
/// exist, or is not known before the pod runs. A label or annotation that the pod does not have is empty.
pub(super) fn field(pod: &Pod, path: &str) -> Option<String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let of = |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
        Some(map.as_ref().and_then(|map| map.get(key).cloned()).unwrap_or_default())
    };
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => spec?.node_name.clone(),
        "spec.serviceAccountName" => Some(spec?.service_account_name.clone().unwrap_or_default()),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            match map {
                "metadata.labels" => of(&meta.labels, key),
                "metadata.annotations" => of(&meta.annotations, key),
                _ => None,
            }
        }
    }
}
