//! The pods, services and namespaces that the handlers may manage.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use staffetta_handler::{AnyEvent, Message};

use crate::config::KubernetesOptions;

/// The annotation of an object that is not to be managed; its value is then `false`.
const MANAGED: &str = "staffetta.dev/managed";

/// The prefix of the finalizers of this program.
pub(crate) const FINALIZER_PREFIX: &str = "staffetta.dev/";

/// Selects the pods, services and namespaces that the handlers may manage, by the configuration and by their annotation. An object with a
/// finalizer of this program is managed until it is deleted.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSelection {
    namespaces: BTreeSet<String>,
    labels: BTreeMap<String, String>,
}

impl ObjectSelection {
    pub(crate) fn new(options: &KubernetesOptions) -> Self {
        Self {
            namespaces: options.namespaces.iter().cloned().collect(),
            labels: options.object_labels.clone(),
        }
    }

    /// Returns `true` if handlers may get the event. Deletions, triggers and objects of other kinds are never left out.
    pub(crate) fn admits(&self, event: &AnyEvent) -> bool {
        let Some(object) = event.object().filter(|_| !event.finalizing()) else { return true };
        let meta = object.meta();
        match &*object.kind() {
            "Pod" | "Service" => {
                is_begun(meta)
                    || (self.has_namespace(meta.namespace.as_ref())
                        && self.has_labels(meta)
                        && !opts_out(meta))
            }
            "Namespace" => is_begun(meta) || (self.has_namespace(meta.name.as_ref()) && !opts_out(meta)),
            _ => true,
        }
    }

    fn has_namespace(&self, namespace: Option<&String>) -> bool {
        self.namespaces.is_empty() || namespace.is_some_and(|namespace| self.namespaces.contains(namespace))
    }

    fn has_labels(&self, meta: &ObjectMeta) -> bool {
        let has = |key, value| meta.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value);
        self.labels.iter().all(|(key, value)| has(key, value))
    }
}

/// Returns `true` if the object is managed already.
fn is_begun(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer.starts_with(FINALIZER_PREFIX))
}

/// Returns `true` if the annotation says that the object is not to be managed.
fn opts_out(meta: &ObjectMeta) -> bool {
    meta.annotations
        .as_ref()
        .and_then(|annotations| annotations.get(MANAGED))
        .is_some_and(|value| value == "false")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
    use serde_json::{Value, json};
    use staffetta_handler::{Event, Tombstone};

    use super::*;

    fn selection(namespaces: &[&str], labels: &[(&str, &str)]) -> ObjectSelection {
        let namespaces = namespaces.iter().map(|&namespace| namespace.to_owned()).collect();
        let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        ObjectSelection::new(&KubernetesOptions {
            namespaces,
            object_labels: labels,
            ..KubernetesOptions::default()
        })
    }

    fn pod(metadata: &Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn without_options_only_the_annotation_leaves_an_object_alone() {
        let all = selection(&[], &[]);
        let admits = |value: &str| {
            let pod = pod(&json!({ "namespace": "shop", "annotations": { MANAGED: value } }));
            all.admits(&Event::Modified(pod).erase())
        };
        assert!(all.admits(&Event::Added(pod(&json!({ "namespace": "shop" }))).erase()));
        assert!(!admits("false") && admits("true"));
    }

    #[test]
    fn pods_and_services_need_the_namespace_and_each_label_and_namespaces_their_name() {
        let some = selection(&["shop", "bank"], &[("tier", "web"), ("net", "neutron")]);
        let admits = |namespace: &str, labels: Value| {
            let metadata = json!({ "namespace": namespace, "labels": labels });
            let service: Service = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let of_service = some.admits(&Event::Added(Arc::new(service)).erase());
            assert_eq!(some.admits(&Event::Modified(pod(&metadata)).erase()), of_service);
            of_service
        };
        let both = json!({ "tier": "web", "net": "neutron", "a": "b" });
        assert!(admits("shop", both.clone()) && admits("bank", both.clone()));
        assert!(!admits("other", both) && !admits("shop", json!({ "tier": "web" })));
        assert!(!admits("shop", json!({ "tier": "web", "net": "other" })));

        let namespace = |name: &str| {
            let namespace: Namespace =
                serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            some.admits(&Event::Added(Arc::new(namespace)).erase())
        };
        assert!(namespace("shop") && !namespace("other"));
    }

    #[test]
    fn what_is_managed_already_stays_so_and_what_goes_is_always_released() {
        let none = selection(&["shop"], &[]);
        let other = |more: Value| {
            let mut metadata = json!({ "namespace": "other", "annotations": { MANAGED: "false" } });
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pod(&metadata)
        };
        assert!(!none.admits(&Event::Modified(other(json!({ "finalizers": ["example.com/x"] }))).erase()));
        assert!(none.admits(&Event::Modified(other(json!({ "finalizers": ["staffetta.dev/vif"] }))).erase()));
        let terminating = other(json!({ "deletionTimestamp": "2026-11-25T12:00:00Z" }));
        assert!(none.admits(&Event::Modified(terminating).erase()));
        assert!(none.admits(&Event::Deleted(Tombstone::Last(other(json!({})))).erase()));
    }

    #[test]
    fn other_kinds_are_never_left_out() {
        let map: ConfigMap = serde_json::from_value(
            json!({ "metadata": { "namespace": "kube-system", "name": "amazon-vpc-cni" } }),
        )
        .unwrap();
        assert!(selection(&["shop"], &[("tier", "web")]).admits(&Event::Added(Arc::new(map)).erase()));
    }
}
