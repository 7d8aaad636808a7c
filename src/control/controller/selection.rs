//! The pods, services and namespaces that the handlers may manage.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Selector;
use staffetta_handler::{
    AnyEvent, CLUSTER_ANNOTATION, Interest, Kind, Message, Object, Registration, Setup, SetupError,
};
use tracing::info;

use super::namespace_scope::NamespaceScope;
use crate::base::config::{KubernetesOptions, label_selector};
use crate::engine::pipeline::Pipeline;
use crate::engine::watcher::Watcher;

/// The annotation whose value `false` excludes an object from management by the handlers.
const MANAGED_ANNOTATION: &str = "staffetta.dev/managed";

/// The prefix of the names of the finalizers that handlers set on pods, services and namespaces.
pub(crate) const FINALIZER_PREFIX: &str = "staffetta.dev/";

/// The selection of the pods, services and namespaces that the handlers may manage, by the configuration and by their annotation. An object
/// with a finalizer and the cluster id of this installation is managed until it is deleted.
#[derive(Debug)]
pub(crate) struct ObjectSelection {
    /// The cluster id of this installation; `None` only if no object was written by it.
    cluster_id: Option<String>,
    /// The finalizers of the enabled handlers.
    finalizers: BTreeSet<String>,
    /// The option `kubernetes.namespaces`. If it is empty, all namespaces are selected.
    namespaces: BTreeSet<String>,
    labels: Option<Selector>,
    /// The namespaces that match `kubernetes.namespace_labels`; `None` if that option is not set.
    scope: Option<Arc<NamespaceScope>>,
}

impl ObjectSelection {
    /// Returns the selection that all handlers created with `setup` share. Fails if the section `[kubernetes]` is invalid.
    pub(crate) fn shared(setup: &Setup) -> Result<Arc<Self>, SetupError> {
        let options = setup.section("kubernetes")?;
        setup.shared(|| Ok(Self::new(&options)))
    }

    /// Creates the selection that `options` describe. A namespace does not match `kubernetes.namespace_labels` until the watch has
    /// delivered it.
    pub(crate) fn new(options: &KubernetesOptions) -> Self {
        let selector = |text: &Option<String>| {
            let parse = |text| label_selector::parse(text).expect("the schema requires a label selector");
            text.as_deref().map(parse)
        };
        let finalizer = |handler: &String| format!("{FINALIZER_PREFIX}{handler}");
        Self {
            cluster_id: options.cluster_id.clone(),
            finalizers: options.enabled_handlers.iter().map(finalizer).collect(),
            namespaces: options.namespaces.iter().cloned().collect(),
            labels: selector(&options.object_labels),
            scope: selector(&options.namespace_labels).map(NamespaceScope::new).map(Arc::new),
        }
    }

    /// Adds a filter to `registration`, so that its handler gets only events of selected objects. If objects are selected by the labels of
    /// their namespaces, the handler also gets an index of all namespaces.
    pub(crate) fn restrict(self: Arc<Self>, registration: Registration) -> Registration {
        let registration = match &self.scope {
            Some(scope) if registration.kinds().any(is_in_namespace_scope) => {
                registration.index(Arc::clone(scope))
            }
            _ => registration,
        };
        let keeps_unselected = registration.keeps_unselected;
        registration.filter(move |event| self.admits(event, keeps_unselected))
    }

    /// Starts to watch `kinds` with `watcher`. If objects are selected by the labels of their namespaces, the namespaces are delivered
    /// before pods and services are listed.
    pub(super) fn watch(&self, kinds: &[Kind], watcher: &Watcher<Pipeline>) {
        let waits = |kind: &&Kind| self.scope.is_some() && is_in_namespace_scope(kind);
        let (later, first): (Vec<_>, Vec<_>) = kinds.iter().partition(waits);
        for kind in first {
            watcher.add(kind);
        }
        for kind in later {
            watcher.add_after(kind, TypeId::of::<Namespace>());
        }
    }

    /// Delivers the pods and services of a namespace again each time that its labels begin to match `kubernetes.namespace_labels`. Returns
    /// only if that option is not set.
    pub(super) async fn follow_namespaces(&self, watcher: &Watcher<Pipeline>) {
        let Some(scope) = &self.scope else { return };
        loop {
            for namespace in scope.newly_matching().await {
                info!(namespace, "the labels of the namespace match; its pods and services are listed");
                watcher.deliver_again(&namespace, is_in_namespace_scope);
            }
        }
    }

    /// Returns [`Interest::Taken`] if handlers may get the event, otherwise [`Interest::Declined`] with the reason. Deletions, triggers,
    /// and objects other than pods, services and namespaces are always taken; objects whose deletion is requested too, unless another
    /// installation manages them. With `keeps_unselected`, an object that this installation manages already is taken although it is not
    /// selected: its handler keeps and releases what the ownership marks show, and creates nothing.
    pub(crate) fn admits(&self, event: &AnyEvent, keeps_unselected: bool) -> Interest {
        let Some(object) = event.object().filter(|object| is_selectable(*object)) else {
            return Interest::Taken;
        };
        let manager = object.meta().annotations.as_ref().and_then(|all| all.get(CLUSTER_ANNOTATION));
        let is_ours = manager.is_some() && manager == self.cluster_id.as_ref();
        Interest::unless(if event.finalizing() {
            let is_others = manager.is_some() && !is_ours && self.has_finalizer(object.meta());
            is_others.then_some("another installation manages it")
        } else if keeps_unselected && is_ours && self.has_finalizer(object.meta()) {
            None
        } else {
            self.exclusion(object)
        })
    }

    /// Returns the cluster id of this installation; empty if it is not known.
    pub(crate) fn cluster_id(&self) -> &str {
        self.cluster_id.as_deref().unwrap_or_default()
    }

    /// Returns the reason why the configuration or an annotation excludes the object; `None` if it is selected.
    pub(crate) fn exclusion(&self, object: &dyn Object) -> Option<&'static str> {
        let meta = object.meta();
        let is_namespace = is_namespace(object);
        let namespace = if is_namespace { &meta.name } else { &meta.namespace };
        if !self.namespaces.is_empty() && !namespace.iter().any(|name| self.namespaces.contains(name)) {
            Some("its namespace is not in `kubernetes.namespaces`")
        } else if !is_namespace
            && !self.labels.as_ref().is_none_or(|labels| label_selector::matches(labels, meta))
        {
            Some("its labels do not match `kubernetes.object_labels`")
        } else if opts_out(meta) {
            Some("its annotation `staffetta.dev/managed` is \"false\"")
        } else if is_namespace && !self.scope.as_ref().is_none_or(|scope| scope.matches(meta)) {
            Some("its labels do not match `kubernetes.namespace_labels`")
        } else if !is_namespace && !self.has_namespace_labels(namespace.as_deref()) {
            Some("the labels of its namespace do not match `kubernetes.namespace_labels`")
        } else {
            None
        }
    }

    /// Returns `true` if the object has the finalizer of an enabled handler.
    fn has_finalizer(&self, meta: &ObjectMeta) -> bool {
        meta.finalizers.iter().flatten().any(|finalizer| self.finalizers.contains(finalizer))
    }

    /// Returns `true` if the labels of the namespace match `kubernetes.namespace_labels`, or that option is not set. Otherwise the
    /// namespace is recorded as one with skipped objects, which are delivered when its labels match. So call this only for an object that
    /// nothing but the labels of its namespace excludes. `None`, which no pod or service has, matches only if the option is not set.
    fn has_namespace_labels(&self, namespace: Option<&str>) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.admits_objects_of(namespace.unwrap_or_default()))
    }
}

/// Returns `true` for a kind whose objects are selected by their namespaces: pods and services, whatever their Rust type.
fn is_selected_by_namespace(kind: &str, api_version: &str) -> bool {
    api_version == "v1" && ["Pod", "Service"].contains(&kind)
}

/// Returns `true` if the objects of `kind` are selected by their namespaces.
fn is_in_namespace_scope(kind: &Kind) -> bool {
    is_selected_by_namespace(&kind.name, &kind.api_version)
}

/// Returns `true` for a namespace.
fn is_namespace(object: &dyn Object) -> bool {
    object.kind() == "Namespace" && object.api_version() == "v1"
}

/// Returns `true` for an object that the configuration may select: a pod, a service or a namespace.
fn is_selectable(object: &dyn Object) -> bool {
    is_namespace(object) || is_selected_by_namespace(&object.kind(), &object.api_version())
}

/// Returns `true` if the annotation [`MANAGED_ANNOTATION`] excludes the object from management.
fn opts_out(meta: &ObjectMeta) -> bool {
    meta.annotations
        .as_ref()
        .and_then(|annotations| annotations.get(MANAGED_ANNOTATION))
        .is_some_and(|value| value == "false")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
    use serde_json::{Value, json};
    use staffetta_handler::{Event, Index, Tombstone};

    use super::*;

    fn selection(namespaces: &[&str], labels: Option<&str>) -> ObjectSelection {
        ObjectSelection::new(&KubernetesOptions {
            cluster_id: Some("east".to_owned()),
            namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(),
            object_labels: labels.map(str::to_owned),
            ..KubernetesOptions::default()
        })
    }

    #[test]
    fn each_reason_names_what_keeps_the_object_out() {
        let some = ObjectSelection::new(&KubernetesOptions {
            namespaces: vec!["shop".to_owned(), "bank".to_owned()],
            namespace_labels: Some("team=net".to_owned()),
            object_labels: Some("tier=web".to_owned()),
            ..KubernetesOptions::default()
        });
        let namespace = |name: &str, labels: Value| {
            let metadata = json!({ "name": name, "labels": labels });
            let event = Event::Added(serde_json::from_value(json!({ "metadata": metadata })).unwrap());
            some.scope.as_ref().unwrap().apply(&event);
            some.admits(&event.erase(), true).reason().unwrap_or_default()
        };
        assert_eq!(namespace("shop", json!({ "team": "net" })), "");
        assert_eq!(namespace("bank", json!({})), "its labels do not match `kubernetes.namespace_labels`");
        assert_eq!(namespace("other", json!({})), "its namespace is not in `kubernetes.namespaces`");
        let web = || json!({ "tier": "web" });
        for (name, labels, annotations, reason) in [
            ("other", web(), json!({}), "its namespace is not in `kubernetes.namespaces`"),
            ("shop", json!({}), json!({}), "its labels do not match `kubernetes.object_labels`"),
            (
                "shop",
                web(),
                json!({ MANAGED_ANNOTATION: "false" }),
                "its annotation `staffetta.dev/managed` is \"false\"",
            ),
            (
                "bank",
                web(),
                json!({}),
                "the labels of its namespace do not match `kubernetes.namespace_labels`",
            ),
        ] {
            let pod = pod(&json!({ "namespace": name, "labels": labels, "annotations": annotations }));
            assert_eq!(some.admits(&Event::Added(pod).erase(), true), Interest::Declined(reason));
        }
    }

    fn pod(metadata: &Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    #[test]
    fn without_options_only_the_annotation_leaves_an_object_alone() {
        let all = selection(&[], None);
        let admits = |value: &str| {
            let pod = pod(&json!({ "namespace": "shop", "annotations": { MANAGED_ANNOTATION: value } }));
            all.admits(&Event::Modified(pod).erase(), true).is_taken()
        };
        assert!(all.admits(&Event::Added(pod(&json!({ "namespace": "shop" }))).erase(), true).is_taken());
        assert!(!admits("false") && admits("true"));
    }

    #[test]
    fn pods_and_services_need_the_namespace_and_each_label_and_namespaces_their_name() {
        let some = selection(&["shop", "bank"], Some("tier=web,net in (neutron,ovn),!off"));
        let admits = |namespace: &str, labels: Value| {
            let metadata = json!({ "namespace": namespace, "labels": labels });
            let service: Service = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let of_service = some.admits(&Event::Added(Arc::new(service)).erase(), true).is_taken();
            assert_eq!(some.admits(&Event::Modified(pod(&metadata)).erase(), true).is_taken(), of_service);
            of_service
        };
        let both = json!({ "tier": "web", "net": "neutron", "a": "b" });
        assert!(admits("shop", both.clone()) && admits("bank", both.clone()));
        assert!(!admits("other", both) && !admits("shop", json!({ "tier": "web" })));
        assert!(!admits("shop", json!({ "tier": "web", "net": "other" })));
        assert!(!admits("shop", json!({ "tier": "web", "net": "ovn", "off": "" })));

        let namespace = |name: &str| {
            let namespace: Namespace =
                serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            some.admits(&Event::Added(Arc::new(namespace)).erase(), true).is_taken()
        };
        assert!(namespace("shop") && !namespace("other"));
    }

    #[test]
    fn objects_of_a_namespace_need_its_labels_too_and_managed_ones_do_not() {
        let some = Arc::new(ObjectSelection::new(&KubernetesOptions {
            cluster_id: Some("east".to_owned()),
            namespaces: vec!["shop".to_owned(), "bank".to_owned()],
            namespace_labels: Some("team=net".to_owned()),
            ..KubernetesOptions::default()
        }));
        let namespace = |name: &str, team: &str| {
            let metadata = json!({ "name": name, "labels": { "team": team } });
            let event = Event::Added(serde_json::from_value(json!({ "metadata": metadata })).unwrap());
            some.scope.as_ref().unwrap().apply(&event);
            some.admits(&event.erase(), true).is_taken()
        };
        let admits = |metadata: Value| some.admits(&Event::Added(pod(&metadata)).erase(), true).is_taken();
        assert!(!admits(json!({ "namespace": "shop" })), "it is not known yet");
        assert!(namespace("shop", "net") && !namespace("bank", "web") && !namespace("other", "net"));
        assert!(admits(json!({ "namespace": "shop" })));
        assert!(!admits(json!({ "namespace": "bank" })) && !admits(json!({ "namespace": "other" })));
        let ours = json!({ CLUSTER_ANNOTATION: "east" });
        assert!(admits(
            json!({ "namespace": "bank", "finalizers": ["staffetta.dev/vif"], "annotations": ours })
        ));
        let forged = pod(&json!({ "namespace": "bank", "finalizers": ["staffetta.dev/vif"],
            "annotations": { CLUSTER_ANNOTATION: "east" } }));
        let other = some.admits(&Event::Added(forged).erase(), false);
        assert!(!other.is_taken(), "a handler that does not check what was made for the object");
        let finalizing = json!({ "namespace": "bank", "deletionTimestamp": "2026-11-25T12:00:00Z" });
        assert!(admits(finalizing));
    }

    #[test]
    fn only_what_the_namespace_alone_keeps_out_is_delivered_again() {
        use futures_util::FutureExt;

        let some = ObjectSelection::new(&KubernetesOptions {
            namespace_labels: Some("team=net".to_owned()),
            object_labels: Some("tier=web".to_owned()),
            ..KubernetesOptions::default()
        });
        let scope = some.scope.as_ref().unwrap();
        for (name, labels, newly_matching) in
            [("shop", json!({ "tier": "web" }), true), ("bank", json!({}), false)]
        {
            let pod = pod(&json!({ "namespace": name, "labels": labels }));
            assert!(!some.admits(&Event::Added(pod).erase(), true).is_taken());
            let metadata = json!({ "name": name, "labels": { "team": "net" } });
            let namespace: Namespace = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            scope.apply(&Event::Added(Arc::new(namespace)));
            assert_eq!(scope.newly_matching().now_or_never().is_some(), newly_matching, "{name}");
        }
    }

    #[test]
    fn an_object_that_no_handler_wants_does_not_count_as_left_out() {
        use futures_util::FutureExt;
        use staffetta_handler::ResourceEventHandler;

        struct NotHostNetwork;
        impl ResourceEventHandler<Pod> for NotHostNetwork {
            type Error = std::convert::Infallible;
            fn wants(&self, event: &Event<Pod>) -> Interest {
                let spec = event.object().and_then(|pod| pod.spec.as_ref());
                let host_network = spec.is_some_and(|spec| spec.host_network == Some(true));
                Interest::unless(host_network.then_some("it uses the network of its node"))
            }
        }

        let some = Arc::new(ObjectSelection::new(&KubernetesOptions {
            namespace_labels: Some("team=net".to_owned()),
            ..KubernetesOptions::default()
        }));
        let registration = Registration::new(NotHostNetwork).on::<Pod>().erase();
        let handler = Arc::clone(&some).restrict(registration);
        for (name, host_network, newly_matching) in [("shop", false, true), ("bank", true, false)] {
            let pod = json!({ "metadata": { "namespace": name }, "spec": { "hostNetwork": host_network, "containers": [] } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert!(!handler.wants(&Event::Added(Arc::new(pod)).erase()).is_taken());
            let metadata = json!({ "name": name, "labels": { "team": "net" } });
            let namespace: Namespace = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let scope = some.scope.as_ref().unwrap();
            scope.apply(&Event::Added(Arc::new(namespace)));
            assert_eq!(scope.newly_matching().now_or_never().is_some(), newly_matching, "{name}");
        }
    }

    #[test]
    fn what_this_installation_manages_stays_so_and_nothing_else_does() {
        let none = selection(&["shop"], None);
        let taken = |annotations: Value, finalizer: &str, deleted: Value| {
            let metadata = json!({ "namespace": "other", "annotations": annotations,
                "finalizers": [finalizer], "deletionTimestamp": deleted });
            none.admits(&Event::Modified(pod(&metadata)).erase(), true).is_taken()
        };
        let of = |id: &str| json!({ CLUSTER_ANNOTATION: id, MANAGED_ANNOTATION: "false" });
        let (deleted, vif) = (json!("2026-11-25T12:00:00Z"), "staffetta.dev/vif");
        assert!(taken(of("east"), vif, Value::Null));
        for (annotations, finalizer) in [
            (of("west"), vif),
            (json!({}), vif),
            (of("east"), "example.com/x"),
            (of("east"), "staffetta.dev/x"),
            (of("east"), "staffetta.dev/namespace"),
        ] {
            assert!(!taken(annotations, finalizer, Value::Null), "{finalizer}");
        }
        // What goes is released, except by another installation.
        assert!(taken(of("east"), vif, deleted.clone()) && taken(json!({}), vif, deleted.clone()));
        assert!(!taken(of("west"), vif, deleted.clone()) && taken(of("west"), "example.com/x", deleted));
        let gone = pod(&json!({ "namespace": "other", "annotations": of("west") }));
        assert!(none.admits(&Event::Deleted(Tombstone::Last(gone)).erase(), true).is_taken());
    }

    #[test]
    fn other_kinds_are_never_left_out() {
        let map: ConfigMap = serde_json::from_value(
            json!({ "metadata": { "namespace": "kube-system", "name": "amazon-vpc-cni" } }),
        )
        .unwrap();
        assert!(
            selection(&["shop"], Some("tier=web"))
                .admits(&Event::Added(Arc::new(map)).erase(), true)
                .is_taken()
        );
        assert!(is_selected_by_namespace("Service", "v1"));
        assert!(!is_selected_by_namespace("Service", "serving.knative.dev/v1"));
    }
}
