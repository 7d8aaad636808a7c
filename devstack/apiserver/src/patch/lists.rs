//! The merge strategy of each list in a strategic merge: by the key of its elements, as a set, or as one value. The
//! source is the `patchMergeKey` and `patchStrategy` of the Kubernetes API reference.

/// The merge strategy of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Elements are maps; those with the same value of this field are one element.
    Keyed(&'static str),
    /// Elements are plain values; the list is a set.
    Set,
    /// The list is replaced as a whole.
    Atomic,
}

/// Lists of every object.
const METADATA: &[(&str, List)] =
    &[("metadata.finalizers", List::Set), ("metadata.ownerReferences", List::Keyed("uid"))];

/// Lists of one kind.
const OF_KIND: &[(&str, &str, List)] = &[
    ("Service", "spec.ports", List::Keyed("port")),
    ("ServiceAccount", "secrets", List::Keyed("name")),
    ("ServiceAccount", "imagePullSecrets", List::Keyed("name")),
    ("MutatingWebhookConfiguration", "webhooks", List::Keyed("name")),
    ("Node", "spec.podCIDRs", List::Set),
    ("Node", "status.addresses", List::Keyed("type")),
    ("Pod", "status.podIPs", List::Keyed("ip")),
    ("Pod", "status.hostIPs", List::Keyed("ip")),
    ("Pod", "status.resourceClaimStatuses", List::Keyed("name")),
];

/// Lists of a pod spec, wherever it stands.
const POD_SPEC: &[(&str, List)] = &[
    ("containers", List::Keyed("name")),
    ("initContainers", List::Keyed("name")),
    ("ephemeralContainers", List::Keyed("name")),
    ("volumes", List::Keyed("name")),
    ("imagePullSecrets", List::Keyed("name")),
    ("hostAliases", List::Keyed("ip")),
    ("topologySpreadConstraints", List::Keyed("topologyKey")),
    ("schedulingGates", List::Keyed("name")),
    ("resourceClaims", List::Keyed("name")),
];

/// Lists of a container.
const CONTAINER: &[(&str, List)] = &[
    ("ports", List::Keyed("containerPort")),
    ("env", List::Keyed("name")),
    ("volumeMounts", List::Keyed("mountPath")),
    ("volumeDevices", List::Keyed("devicePath")),
];

/// The rule for the list at `path`: field names joined by dots, elements of lists not counted.
pub(super) fn rule(kind: &str, path: &str) -> List {
    if let Some((_, list)) = METADATA.iter().find(|(at, _)| *at == path) {
        return *list;
    }
    if let Some((.., list)) = OF_KIND.iter().find(|(of, at, _)| *of == kind && *at == path) {
        return *list;
    }
    // An Endpoints and a CustomResourceDefinition have no conditions that merge.
    if path == "status.conditions" && kind != "CustomResourceDefinition" {
        return List::Keyed("type");
    }
    let template = path.strip_prefix("spec.template.").filter(|_| kind != "Pod");
    let pod = template.or((kind == "Pod").then_some(path));
    let Some(pod) = pod else { return List::Atomic };
    if template.is_some()
        && let Some((_, list)) = METADATA.iter().find(|(at, _)| *at == pod)
    {
        return *list;
    }
    let Some(in_spec) = pod.strip_prefix("spec.") else { return List::Atomic };
    let (rows, field) = match in_spec.split_once('.') {
        None => (POD_SPEC, in_spec),
        Some(("containers" | "initContainers" | "ephemeralContainers", field)) => (CONTAINER, field),
        Some(_) => return List::Atomic,
    };
    rows.iter().find(|(at, _)| *at == field).map_or(List::Atomic, |(_, list)| *list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_means_different_things_in_different_places() {
        assert_eq!(rule("Service", "spec.ports"), List::Keyed("port"));
        assert_eq!(rule("Pod", "spec.containers.ports"), List::Keyed("containerPort"));
        assert_eq!(rule("Deployment", "spec.template.spec.containers.ports"), List::Keyed("containerPort"));
        assert_eq!(rule("EndpointSlice", "ports"), List::Atomic);
        assert_eq!(rule("Pod", "spec.tolerations"), List::Atomic);
        assert_eq!(rule("Deployment", "spec.template.spec.volumes"), List::Keyed("name"));
        assert_eq!(rule("Pod", "metadata.finalizers"), List::Set);
    }
}
