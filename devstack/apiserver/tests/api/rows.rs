//! The table of the tests: one row a resource, with what sets it apart. It is written down apart from the server's own
//! table, and the real server judges it.

use serde_json::{Value, json};

use crate::harness::Place;

#[allow(clippy::struct_excessive_bools, reason = "each is a column of the table")]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    /// The fields of a sample besides its metadata.
    sample: Value,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    pub(crate) generation: bool,
    pub(crate) create_on_put: bool,
    pub(crate) versioned_put: bool,
    /// DELETE answers with the object.
    pub(crate) echoed: bool,
    pub(crate) custom: bool,
}

impl Row {
    fn new(group: &str, plural: &'static str, kind: &'static str, sample: Value) -> Self {
        Self {
            group: group.into(),
            plural,
            kind,
            namespaced: true,
            sample,
            status: false,
            scale: false,
            generation: false,
            create_on_put: false,
            versioned_put: false,
            echoed: false,
            custom: false,
        }
    }

    fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    fn api(&self) -> String {
        if self.group.is_empty() { "/api/v1".into() } else { format!("/apis/{}/v1", self.group) }
    }

    /// The path of the collection.
    pub(crate) fn path(&self, place: &Place) -> String {
        let scope = if self.namespaced { format!("namespaces/{}/", place.namespace) } else { String::new() };
        format!("{}/{scope}{}", self.api(), self.plural)
    }

    /// The path of the group version.
    pub(crate) fn version_path(&self) -> String {
        self.api()
    }

    /// The path of one object.
    pub(crate) fn object(&self, place: &Place, name: &str) -> String {
        format!("{}/{}", self.path(place), self.name(place, name))
    }

    /// The name of an object: cluster-wide objects carry the test's word, and the others their kind, because controllers
    /// take objects of one name for a pair (a service and its endpoints).
    pub(crate) fn name(&self, place: &Place, name: &str) -> String {
        if self.group == "events.k8s.io" {
            format!("newer-event-{name}") // both groups show the same objects
        } else if self.namespaced {
            format!("{}-{name}", self.kind.to_lowercase())
        } else {
            format!("{}-{name}", place.word)
        }
    }

    /// A sample that the server accepts.
    pub(crate) fn sample(&self, place: &Place, name: &str) -> Value {
        let mut object = self.sample.clone();
        object["apiVersion"] =
            if self.group.is_empty() { "v1".into() } else { format!("{}/v1", self.group).into() };
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": self.name(place, name), "labels": {"test": name}});
        if self.namespaced {
            object["metadata"]["namespace"] = place.namespace.as_str().into();
        }
        for about in ["involvedObject", "regarding"] {
            if !object[about].is_null() {
                object[about]["namespace"] = place.namespace.as_str().into();
            }
        }
        object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        object
    }

    /// The name of the row in messages.
    pub(crate) fn called(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// The rows, and the definition that serves the last of them.
pub(crate) async fn rows(place: &Place) -> Vec<Row> {
    define(place).await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let workload =
        json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template}});
    let mut daemons = workload.clone();
    daemons["spec"].as_object_mut().unwrap().remove("replicas");
    daemons["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such-node"});
    let replicated = |row: &mut Row| (row.status, row.scale, row.generation) = (true, true, true);
    let (rbac, apps) = ("rbac.authorization.k8s.io", "apps");
    let about = json!({"kind": "Pod", "name": "x"});
    vec![
        Row::new("", "namespaces", "Namespace", json!({}))
            .with(|row| (row.namespaced, row.status, row.echoed) = (false, true, true)),
        Row::new("", "nodes", "Node", json!({})).with(|row| (row.namespaced, row.status) = (false, true)),
        Row::new("", "pods", "Pod", json!({"spec": {"nodeSelector": {"no": "such-node"}, "containers": [{"name": "c", "image": "i:1"}]}}))
            .with(|row| (row.status, row.generation, row.echoed) = (true, true, true)),
        Row::new("", "services", "Service", json!({"spec": {"ports": [{"port": 80}]}}))
            .with(|row| (row.status, row.create_on_put, row.echoed) = (true, true, true)),
        Row::new("", "endpoints", "Endpoints", json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]}))
            .with(|row| row.create_on_put = true),
        Row::new("", "configmaps", "ConfigMap", json!({"data": {"a": "b"}})),
        Row::new("", "secrets", "Secret", json!({"stringData": {"a": "b"}})),
        Row::new("", "serviceaccounts", "ServiceAccount", json!({})).with(|row| row.echoed = true),
        Row::new("", "events", "Event", json!({"involvedObject": about, "reason": "r", "message": "m", "type": "Normal"}))
            .with(|row| row.create_on_put = true),
        Row::new(
            "events.k8s.io",
            "events",
            "Event",
            json!({
                "regarding": about, "reason": "r", "note": "m", "type": "Normal", "action": "a",
                "reportingController": "example.org/test", "reportingInstance": "i",
                "eventTime": "2026-01-01T00:00:00.000000Z",
            }),
        )
        .with(|row| row.create_on_put = true),
        Row::new(apps, "deployments", "Deployment", workload.clone()).with(replicated),
        Row::new(apps, "replicasets", "ReplicaSet", workload.clone()).with(replicated),
        Row::new(apps, "statefulsets", "StatefulSet", workload).with(replicated),
        Row::new(apps, "daemonsets", "DaemonSet", daemons).with(|row| (row.status, row.generation) = (true, true)),
        Row::new("discovery.k8s.io", "endpointslices", "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 1}]}))
            .with(|row| row.generation = true),
        Row::new("coordination.k8s.io", "leases", "Lease", json!({"spec": {"holderIdentity": "a"}}))
            .with(|row| (row.create_on_put, row.versioned_put) = (true, true)),
        Row::new("networking.k8s.io", "networkpolicies", "NetworkPolicy", json!({"spec": {"podSelector": {}}}))
            .with(|row| row.generation = true),
        Row::new("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", json!({}))
            .with(|row| (row.namespaced, row.generation, row.versioned_put) = (false, true, true)),
        Row::new(rbac, "roles", "Role", json!({"rules": []})).with(|row| row.create_on_put = true),
        Row::new(rbac, "rolebindings", "RoleBinding",
            json!({"roleRef": {"apiGroup": rbac, "kind": "Role", "name": "x"}}))
            .with(|row| row.create_on_put = true),
        Row::new(rbac, "clusterroles", "ClusterRole", json!({"rules": []}))
            .with(|row| (row.namespaced, row.create_on_put) = (false, true)),
        Row::new(rbac, "clusterrolebindings", "ClusterRoleBinding",
            json!({"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "x"}}))
            .with(|row| (row.namespaced, row.create_on_put) = (false, true)),
        Row::new(&place.group(), "widgets", "Widget", json!({"spec": {"replicas": 1}})).with(|row| {
            (row.status, row.scale, row.generation, row.versioned_put, row.custom) = (true, true, true, true, true);
        }),
    ]
}

/// The definition of the test's own kind.
pub(crate) fn definition(place: &Place) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{}", place.group())},
        "spec": {
            "group": place.group(), "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
            }],
        },
    })
}

/// The path of custom resource definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn define(place: &Place) {
    place.post(DEFINITIONS, &definition(place)).await.expect(201, "the definition of widgets");
    let path = format!("/apis/{}/v1/namespaces/{}/widgets", place.group(), place.namespace);
    let definition = format!("{DEFINITIONS}/widgets.{}", place.group());
    place
        .until("widgets are served", || async {
            let stored = place.get(&definition).await.body;
            let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let established = conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True");
            established && place.get(&path).await.code == 200
        })
        .await;
}

/// Everything outside of the test's namespace that a test may have made.
pub(crate) fn cluster_wide(place: &Place) -> Vec<String> {
    let mut paths = vec![format!("{DEFINITIONS}/widgets.{}", place.group())];
    for collection in [
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ] {
        for name in ["a", "b", "c"] {
            paths.push(format!("{collection}/{}-{name}", place.word));
        }
    }
    paths
}

/// An object of the row, created.
pub(crate) async fn made(place: &Place, row: &Row, name: &str) -> Value {
    let what = format!("create {}", row.called());
    place.post(&row.path(place), &row.sample(place, name)).await.expect(201, &what)
}

/// Replaces an object by itself after `change`, again if a controller of the real server wrote in between.
pub(crate) async fn replaced(place: &Place, path: &str, change: impl Fn(&mut Value)) -> Value {
    for _ in 0..20 {
        let mut object = place.get(path).await.expect(200, path);
        change(&mut object);
        let answer = place.put(path, &object).await;
        if answer.code != 409 {
            return answer.expect(200, path);
        }
    }
    panic!("{path}: no replace came through");
}
