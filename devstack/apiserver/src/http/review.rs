//! Reviews of access (`SubjectAccessReview` and `SelfSubjectAccessReview`), decided by the cluster roles of the server. Other kinds of roles do not
//! count, and requests to the server itself need no rights.

use serde_json::{Value, json};

use crate::engine::Cluster;
use crate::object::Object;

/// Returns the review with its status.
pub(super) fn subject_access(cluster: &Cluster, mut review: Value) -> Value {
    let of = |kind: &str| cluster.store.list(&format!("{kind}.rbac.authorization.k8s.io"), None);
    let (spec, roles) = (&review["spec"], of("clusterroles"));
    let bound = of("clusterrolebindings").into_iter().filter(|binding| is_bound(binding, spec));
    let mut rules = bound.flat_map(|binding| {
        let role = roles.iter().find(|role| role["metadata"]["name"] == binding["roleRef"]["name"]);
        role.map_or_else(Vec::new, |role| items(&role["rules"]).to_vec())
    });
    let is_master = items(&spec["groups"]).contains(&json!("system:masters"));
    let of_self = review["kind"] == "SelfSubjectAccessReview";
    let allowed = of_self || is_master || rules.any(|rule| permits(&rule, &spec["resourceAttributes"]));
    review["status"] = json!({ "allowed": allowed });
    review
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Does the binding name the user or one of the groups?
fn is_bound(binding: &Object, spec: &Value) -> bool {
    items(&binding["subjects"]).iter().any(|subject| match subject["kind"].as_str() {
        Some("Group") => items(&spec["groups"]).contains(&subject["name"]),
        Some("User") => spec["user"] == subject["name"],
        Some("ServiceAccount") => {
            let part = |field: &str| subject[field].as_str().unwrap_or_default();
            spec["user"] == format!("system:serviceaccount:{}:{}", part("namespace"), part("name"))
        }
        _ => false,
    })
}

/// Does the rule permit what the attributes describe?
fn permits(rule: &Value, wanted: &Value) -> bool {
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    let has = |list: &str, value: &str| items(&rule[list]).iter().any(|one| one == "*" || one == value);
    let names = items(&rule["resourceNames"]);
    has("verbs", text("verb"))
        && has("apiGroups", text("group"))
        && has("resources", &resource)
        && (names.is_empty() || names.contains(&wanted["name"]))
}
