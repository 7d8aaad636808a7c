//! The rights of a service account as the API server reports them, and those it used.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;

/// Rights as one says them: `list pods`, `patch services/status`, `get leases.coordination.k8s.io staffetta`.
pub(crate) type Rights = BTreeSet<String>;

/// The rights in all namespaces that each handler asks for.
pub(crate) fn of_handlers(handlers: &[&str]) -> Rights {
    // Events: in the namespace of whatever object they are about. The namespace: its UID is the cluster id.
    let mut rights = vec!["create events.events.k8s.io", "patch events", "get namespaces kube-system"];
    for handler in handlers {
        rights.extend(match *handler {
            "vif" => &["list pods", "watch pods", "patch pods"][..],
            "lbaasspec" => &["list services", "watch services", "patch services"],
            "lb" => &[
                "list services",
                "watch services",
                "patch services",
                "patch services/status",
                "list endpointslices.discovery.k8s.io",
                "watch endpointslices.discovery.k8s.io",
                "list endpoints",
            ],
            "namespace" => &["list namespaces", "watch namespaces", "patch namespaces"],
            "policy" => &[
                "list networkpolicies.networking.k8s.io",
                "watch networkpolicies.networking.k8s.io",
                "list pods",
                "watch pods",
                "list namespaces",
                "watch namespaces",
                "list nodes",
                "watch nodes",
            ],
            "prefix_ip" => &[
                "list nodes",
                "watch nodes",
                "patch nodes/status",
                "list pods",
                "watch pods",
                "patch pods",
                "list configmaps amazon-vpc-cni",
                "watch configmaps amazon-vpc-cni",
            ],
            "app_hosting" => &[
                "list nodes",
                "watch nodes",
                "create nodes",
                "patch nodes",
                "delete nodes",
                "patch nodes/status",
                "list pods",
                "watch pods",
                "get pods",
                "delete pods",
                "patch pods/status",
                "get configmaps",
                "list ciscodevices.cisco.vk",
                "watch ciscodevices.cisco.vk",
                "patch ciscodevices.cisco.vk",
                "patch ciscodevices.cisco.vk/status",
                "create tokenreviews.authentication.k8s.io",
                "create subjectaccessreviews.authorization.k8s.io",
            ],
            "vnode" => &[
                "list nodes",
                "watch nodes",
                "create nodes",
                "patch nodes",
                "delete nodes",
                "patch nodes/status",
                "list pods",
                "watch pods",
                "get pods",
                "delete pods",
                "patch pods/status",
                "get configmaps",
                "list deployments.apps",
                "watch deployments.apps",
                "list leases.coordination.k8s.io",
                "watch leases.coordination.k8s.io",
            ],
            "peer_deployment" => &[
                "list nodes",
                "watch nodes",
                "list deployments.apps",
                "watch deployments.apps",
                "patch deployments.apps/scale",
            ],
            other => panic!("what does {other} need?"),
        });
    }
    rights.into_iter().map(str::to_owned).collect()
}

/// The rights in the namespace of the program, beyond those in all.
pub(crate) fn at_home(handlers: &[&str]) -> Rights {
    let lease = ["get", "watch", "patch"].map(|verb| format!("{verb} {LEASES} staffetta"));
    let accounts = handlers.contains(&"app_hosting").then(|| "get secrets".to_owned());
    lease.into_iter().chain([format!("create {LEASES}")]).chain(accounts).collect()
}

const LEASES: &str = "leases.coordination.k8s.io";

/// The rights that the rules of a role grant.
pub(crate) fn of_rules(rules: &Value) -> Rights {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let mut rights = Rights::new();
    for rule in rules.as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).iter().map(|verb| right(verb, &resource, &group)));
            }
        }
    }
    rights
}

/// All rights in a namespace, of whomever the client is.
pub(crate) async fn rules(client: &Client, namespace: &str) -> Rights {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let reviews = Api::<SelfSubjectRulesReview>::all(client.clone());
    let status = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    assert!(!status.incomplete);
    let mut rights = Rights::new();
    for rule in status.resource_rules {
        for resource in rule.resources.iter().flatten() {
            for group in rule.api_groups.iter().flatten() {
                for verb in &rule.verbs {
                    let right = right(verb, resource, group);
                    match rule.resource_names.as_deref() {
                        None | Some([]) => drop(rights.insert(right)),
                        Some(names) => rights.extend(names.iter().map(|name| format!("{right} {name}"))),
                    }
                }
            }
        }
    }
    rights
}

/// Returns which of all offered rights would be granted, by one review each; in all namespaces if none is given.
pub(crate) async fn granted(client: &Client, namespace: Option<&str>) -> Rights {
    let questions = offered(client).await.into_iter().map(|(verb, resource, group)| async move {
        let (path, subresource) = match resource.split_once('/') {
            Some((path, subresource)) => (path.to_owned(), Some(subresource.to_owned())),
            None => (resource.clone(), None),
        };
        let asked = ResourceAttributes {
            group: Some(group.clone()),
            namespace: namespace.map(str::to_owned),
            resource: Some(path),
            subresource,
            verb: Some(verb.clone()),
            ..ResourceAttributes::default()
        };
        is_granted(client, asked).await.then(|| right(&verb, &resource, &group))
    });
    let answers = stream::iter(questions).buffer_unordered(8).collect::<Vec<_>>().await;
    answers.into_iter().flatten().collect()
}

/// The answer of the server to one question.
pub(crate) async fn is_granted(client: &Client, asked: ResourceAttributes) -> bool {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(asked),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// Each verb of each resource that the server has.
async fn offered(client: &Client) -> Vec<(String, String, String)> {
    let mut offered = Vec::new();
    let mut take =
        |group: &str, resources: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource>| {
            for resource in resources {
                let of = |verb| (verb, resource.name.clone(), group.to_owned());
                offered.extend(resource.verbs.iter().cloned().map(of));
            }
        };
    take("", client.list_core_api_resources("v1").await.unwrap().resources);
    for group in client.list_api_groups().await.unwrap().groups {
        let version = group.preferred_version.unwrap().group_version;
        take(&group.name, client.list_api_group_resources(&version).await.unwrap().resources);
    }
    assert!(offered.len() > 300, "the server was asked for all that it has");
    offered
}

/// Returns the `rights` that `account` used, from the audit log. Panics if one was refused.
pub(crate) fn used(kubeconfig: &Path, account: &str, rights: &Rights) -> Rights {
    let asked = asked(kubeconfig, account);
    let used = asked.into_iter().flat_map(|(right, name)| [format!("{right} {name}"), right]);
    used.filter(|right| rights.contains(right)).collect()
}

/// All that `account` asked for so far, in order: the right that it takes, and the name of the object.
pub(crate) fn asked(kubeconfig: &Path, account: &str) -> Vec<(String, String)> {
    entries(kubeconfig, account).iter().map(of_entry).collect()
}

/// The rights to list that `account` used for a single object, to compare a quiet watch with the server.
pub(crate) fn compared(kubeconfig: &Path, account: &str) -> Rights {
    let entries = entries(kubeconfig, account).into_iter();
    let one = entries.filter(|entry| {
        let uri = entry["requestURI"].as_str().unwrap_or_default();
        entry["verb"] == "list" && uri.split(['?', '&']).any(|parameter| parameter == "limit=1")
    });
    let right =
        |(right, name): (String, String)| if name.is_empty() { right } else { format!("{right} {name}") };
    one.map(|entry| right(of_entry(&entry))).collect()
}

/// The entries of the audit log about requests of `account`, none of which may have been refused.
fn entries(kubeconfig: &Path, account: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(kubeconfig.with_file_name("audit.log"))
        .expect("the API server writes an audit log beside the kubeconfig");
    let mut entries = Vec::new();
    // The last line may be in the making.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines().filter(|line| line.contains(account)) {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["user"]["username"] != account {
            continue;
        }
        assert_eq!(entry["annotations"]["authorization.k8s.io/decision"], "allow", "{line}");
        entries.push(entry);
    }
    entries
}

/// The right that the request of an audit entry takes, and the name of the object.
fn of_entry(entry: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &entry["objectRef"];
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    (right(&text(&entry["verb"]), &resource, &text(&object["apiGroup"])), text(&object["name"]))
}

fn right(verb: &str, resource: &str, group: &str) -> String {
    let (path, subresource) = resource.split_once('/').map_or((resource, None), |(p, s)| (p, Some(s)));
    let path = if group.is_empty() { path.to_owned() } else { format!("{path}.{group}") };
    match subresource {
        Some(subresource) => format!("{verb} {path}/{subresource}"),
        None => format!("{verb} {path}"),
    }
}
