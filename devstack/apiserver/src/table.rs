//! The table of resources, with one row for each resource. All other modules are generic over it.

use std::sync::Arc;

use Trait::{
    CreateOnPut, EchoesDeleted, FreeFinalizers, Generation, Graceful, Namespaced, Scale, StatusKeepsLabels,
    StatusSubresource, VersionedPut,
};

/// The properties in which a resource differs from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    /// Objects live in namespaces.
    Namespaced,
    /// `/status` is served, and the main endpoint ignores `status`.
    StatusSubresource,
    /// A write through `/status` leaves the metadata alone.
    StatusKeepsMetadata,
    /// A write through `/status` leaves the labels alone.
    StatusKeepsLabels,
    /// Finalizers need not be qualified names.
    FreeFinalizers,
    /// `/scale` is served.
    Scale,
    /// `metadata.generation` counts the changes of what is wanted.
    Generation,
    /// A PUT of an object that is not there creates it.
    CreateOnPut,
    /// A PUT must name the resourceVersion it replaces.
    VersionedPut,
    /// DELETE answers with the object, not with a Status.
    EchoesDeleted,
    /// DELETE leaves the object a grace period.
    Graceful,
    /// Defined by a `CustomResourceDefinition`.
    Custom,
}

/// The fields behind `/scale`, as dotted paths.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) wanted: String,
    pub(crate) present: String,
    /// A label selector, or its text; empty where there is none.
    pub(crate) selector: String,
}

impl Default for ScalePaths {
    fn default() -> Self {
        Self {
            wanted: "spec.replicas".into(),
            present: "status.replicas".into(),
            selector: "spec.selector".into(),
        }
    }
}

/// A resource as it is served: a row of the table, or what a `CustomResourceDefinition` adds to it.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) traits: Vec<Trait>,
    /// The resource under which objects are stored; both kinds of Events share one.
    pub(crate) stored_as: Arc<str>,
    /// The paths of the fields behind `/scale`.
    pub(crate) scale: ScalePaths,
    /// Columns of a Table besides the name: those a `CustomResourceDefinition` declares.
    pub(crate) columns: Vec<serde_json::Value>,
}

impl Resource {
    /// Has the resource this trait?
    pub(crate) fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods` or `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

struct Row {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    traits: &'static [Trait],
}

const fn row(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    traits: &'static [Trait],
) -> Row {
    Row { group, version: "v1", plural, kind, short_names, categories, traits }
}

const WORKLOAD: &[Trait] = &[Namespaced, StatusSubresource, Scale, Generation];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("", "namespaces", "Namespace", &["ns"], &[], &[StatusSubresource, EchoesDeleted]),
    row("", "nodes", "Node", &["no"], &[], &[StatusSubresource]),
    row("", "pods", "Pod", &["po"], &["all"], &[Namespaced, StatusSubresource, Generation, EchoesDeleted, Graceful]),
    row("", "services", "Service", &["svc"], &["all"], &[Namespaced, StatusSubresource, CreateOnPut, EchoesDeleted]),
    row("", "endpoints", "Endpoints", &["ep"], &[], &[Namespaced, CreateOnPut]),
    row("", "configmaps", "ConfigMap", &["cm"], &[], &[Namespaced]),
    row("", "secrets", "Secret", &[], &[], &[Namespaced]),
    row("", "serviceaccounts", "ServiceAccount", &["sa"], &[], &[Namespaced, EchoesDeleted]),
    row("", "events", "Event", &["ev"], &[], &[Namespaced, CreateOnPut, FreeFinalizers]),
    row("events.k8s.io", "events", "Event", &["ev"], &[], &[Namespaced, CreateOnPut]),
    row("apps", "deployments", "Deployment", &["deploy"], &["all"], &[Namespaced, StatusSubresource, StatusKeepsLabels, Scale, Generation]),
    row("apps", "replicasets", "ReplicaSet", &["rs"], &["all"], WORKLOAD),
    row("apps", "statefulsets", "StatefulSet", &["sts"], &["all"], WORKLOAD),
    row("apps", "daemonsets", "DaemonSet", &["ds"], &["all"], &[Namespaced, StatusSubresource, Generation]),
    row("discovery.k8s.io", "endpointslices", "EndpointSlice", &[], &[], &[Namespaced, Generation]),
    row("coordination.k8s.io", "leases", "Lease", &[], &[], &[Namespaced, CreateOnPut, VersionedPut, FreeFinalizers]),
    row("networking.k8s.io", "networkpolicies", "NetworkPolicy", &["netpol"], &[], &[Namespaced, Generation]),
    row("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", &["crd", "crds"], &["api-extensions"],
        &[StatusSubresource, Generation, VersionedPut, FreeFinalizers]),
    row("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", &[], &["api-extensions"],
        &[Generation, VersionedPut, FreeFinalizers]),
    row("rbac.authorization.k8s.io", "roles", "Role", &[], &[], &[Namespaced, CreateOnPut]),
    row("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", &[], &[], &[Namespaced, CreateOnPut]),
    row("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", &[], &[], &[CreateOnPut]),
    row("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", &[], &[], &[CreateOnPut]),
];

impl From<&Row> for Resource {
    fn from(row: &Row) -> Self {
        let stored_as = if row.group.is_empty() || row.plural == "events" {
            row.plural.to_owned()
        } else {
            format!("{}.{}", row.plural, row.group)
        };
        Self {
            group: row.group.into(),
            version: row.version.into(),
            plural: row.plural.into(),
            singular: row.kind.to_lowercase(),
            kind: row.kind.into(),
            list_kind: format!("{}List", row.kind),
            short_names: row.short_names.iter().map(ToString::to_string).collect(),
            categories: row.categories.iter().map(ToString::to_string).collect(),
            traits: row.traits.to_vec(),
            stored_as: stored_as.into(),
            scale: ScalePaths::default(),
            columns: Vec::new(),
        }
    }
}

/// All rows, in the order in which discovery lists them.
pub(crate) fn builtins() -> Vec<Arc<Resource>> {
    ROWS.iter().map(|row| Arc::new(row.into())).collect()
}

/// A row by name, for tests and for the few places that need a certain resource.
pub(crate) fn builtin(group: &str, plural: &str) -> Arc<Resource> {
    builtins()
        .into_iter()
        .find(|resource| resource.group == group && resource.plural == plural)
        .expect("the table has this row")
}
