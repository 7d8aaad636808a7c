//! Indexes of services and their endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use parking_lot::Mutex;
use staffetta_handler::{Event, Index};
use tokio::sync::Notify;

use super::endpoints::{EndpointSet, EndpointsKind, ServiceKey};

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The index of all services, updated by their watch, without the copies that `kubectl apply` keeps.
#[derive(Default)]
pub(super) struct ServiceIndex(DashMap<ServiceKey, Arc<Service>>);

impl ServiceIndex {
    /// Returns the current service with this key, or `None` if it does not exist.
    pub(super) fn get(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.0.get(key).map(|service| Arc::clone(&service))
    }

    /// Returns all services, in no particular order.
    pub(super) fn all(&self) -> Vec<Arc<Service>> {
        self.0.iter().map(|service| Arc::clone(&service)).collect()
    }
}

impl Index<Service> for ServiceIndex {
    fn apply(&self, event: &Event<Service>) {
        match event {
            Event::Added(service) | Event::Modified(service) => {
                let mut service = Service::clone(service);
                service.annotations_mut().remove(LAST_APPLIED);
                self.0.insert(ServiceKey::of(&service.metadata), Arc::new(service));
            }
            Event::Deleted(tombstone) => {
                let object_ref = tombstone.object_ref();
                let key = ServiceKey::new(object_ref.namespace, object_ref.name);
                self.0.remove_if(&key, |_, service| service.uid().as_deref() == Some(object_ref.uid));
            }
        }
    }
}

/// The index of the endpoints of all services, updated by the watch of `EndpointSlice` or `Endpoints`.
#[derive(Default)]
pub(super) struct EndpointIndex {
    /// The service of each slice or `Endpoints` object, by UID. An entry stays until the deletion
    /// of the object is handled.
    services: DashMap<String, ServiceKey>,
    /// The endpoints of each service: those in each of its slices or `Endpoints` objects, by the UID of the object.
    endpoints: DashMap<ServiceKey, HashMap<String, Arc<Vec<EndpointSet>>>>,
    /// The services that lost an endpoints object to another service. The method
    /// [`moved`](Self::moved) takes them.
    moved: Mutex<Vec<ServiceKey>>,
    /// Wakes the method [`moved`](Self::moved) when an endpoints object has moved to another service.
    has_moved: Notify,
}

impl EndpointIndex {
    /// Returns the endpoints of a service: one list for each of its slices or `Endpoints` objects, in no particular order.
    pub(super) fn of(&self, service: &ServiceKey) -> Vec<Arc<Vec<EndpointSet>>> {
        self.endpoints.get(service).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Returns the service of the slice or `Endpoints` object with this UID. The service of a
    /// deleted object is known until [`forget`](Self::forget) is called.
    pub(super) fn service_of(&self, uid: &str) -> Option<ServiceKey> {
        self.services.get(uid).map(|service| service.clone())
    }

    /// Removes the entry that names the service of a deleted slice or `Endpoints` object, by the object's UID.
    pub(super) fn forget(&self, uid: &str) {
        self.services.remove(uid);
    }

    /// Waits until endpoints objects have moved to another service, and returns their former
    /// services. The events of such an object are in the queue of its present service.
    pub(super) async fn moved(&self) -> Vec<ServiceKey> {
        self.has_moved.notified().await;
        std::mem::take(&mut *self.moved.lock())
    }
}

impl<K: EndpointsKind> Index<K> for EndpointIndex {
    fn apply(&self, event: &Event<K>) {
        let uid = event.uid();
        let object = event.object().filter(|_| !matches!(event, Event::Deleted(_)));
        let service = object.and_then(|object| object.service());
        if let Some(before) = self.service_of(uid).filter(|before| Some(before) != service.as_ref()) {
            if let Some(mut objects) = self.endpoints.get_mut(&before) {
                objects.remove(uid);
            }
            self.endpoints.remove_if(&before, |_, objects| objects.is_empty());
            if service.is_some() {
                self.moved.lock().push(before);
                self.has_moved.notify_one();
            }
        }
        if let Some((object, service)) = object.zip(service) {
            self.services.insert(uid.to_owned(), service.clone());
            let sets = Arc::new(object.endpoint_sets());
            self.endpoints.entry(service).or_default().insert(uid.to_owned(), sets);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;
    use staffetta_handler::{Identity, Tombstone};

    use super::*;

    fn slice(uid: &str, service: Option<&str>, ip: &str) -> Arc<EndpointSlice> {
        let slice = json!({ "metadata": { "namespace": "default", "name": uid, "uid": uid,
                "labels": service.map(|service| json!({ "kubernetes.io/service-name": service })) },
            "addressType": "IPv4", "endpoints": [{ "addresses": [ip] }], "ports": [{ "name": "http", "port": 80 }] });
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    fn missed(uid: &str) -> Event<EndpointSlice> {
        let identity = Identity::of::<EndpointSlice>(Some("default".into()), uid.into(), uid.into());
        Event::Deleted(Tombstone::Missed(Arc::new(identity)))
    }

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new(Some("default"), name)
    }

    #[test]
    fn a_service_has_the_endpoints_of_all_its_slices() {
        let index = EndpointIndex::default();
        index.apply(&Event::Added(slice("s1", Some("web"), "10.1.0.1")));
        index.apply(&Event::Added(slice("s2", Some("web"), "10.1.0.2")));
        index.apply(&Event::Added(slice("s3", Some("other"), "10.1.0.3")));
        index.apply(&Event::Added(slice("s4", None, "10.1.0.4")));
        index.apply(&Event::Modified(slice("s2", Some("web"), "10.1.0.5")));
        let mut ips: Vec<_> =
            index.of(&key("web")).iter().map(|sets| sets[0].addresses[0].ip.to_string()).collect();
        ips.sort();
        assert_eq!(ips, ["10.1.0.1", "10.1.0.5"]);
        assert_eq!(index.service_of("s4"), None);
    }

    #[test]
    fn the_service_of_a_deleted_slice_is_known_until_the_deletion_is_handled() {
        let index = EndpointIndex::default();
        index.apply(&Event::Added(slice("s1", Some("web"), "10.1.0.1")));
        index.apply(&missed("s1"));
        assert!(index.of(&key("web")).is_empty());
        assert_eq!(index.service_of("s1"), Some(key("web")));
        index.forget("s1");
        assert_eq!(index.service_of("s1"), None);
    }

    #[test]
    fn a_slice_that_changes_its_service_is_removed_from_the_old_one() {
        let index = EndpointIndex::default();
        index.apply(&Event::Added(slice("s1", Some("web"), "10.1.0.1")));
        index.apply(&Event::Modified(slice("s1", Some("other"), "10.1.0.1")));
        assert_eq!((index.of(&key("web")).len(), index.of(&key("other")).len()), (0, 1));
        index.apply(&Event::Modified(slice("s1", None, "10.1.0.1")));
        assert_eq!(index.of(&key("other")).len(), 0);
        assert_eq!(*index.moved.lock(), [key("web")], "the last event is in the queue of `other`");
    }

    #[test]
    fn the_service_index_keeps_no_copies_of_the_object_and_ignores_a_late_deletion_of_a_namesake() {
        let service = |uid: &str| {
            let service = json!({ "metadata": { "namespace": "default", "name": "web", "uid": uid, "labels": { "a": "b" },
                    "finalizers": ["x/y"], "annotations": { "mine": "1", LAST_APPLIED: "{}" } },
                "spec": { "clusterIP": "10.0.0.1", "selector": { "app": "web" } },
                "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
            Arc::new(serde_json::from_value::<Service>(service).unwrap())
        };
        let index = ServiceIndex::default();
        index.apply(&Event::Added(service("new")));
        index.apply(&Event::Deleted(Tombstone::Last(service("old"))));
        let kept = index.get(&key("web")).unwrap();
        assert_eq!(kept.annotations().keys().collect::<Vec<_>>(), ["mine"]);
        assert_eq!((kept.labels().len(), kept.finalizers()), (1, &["x/y".to_owned()][..]));
        let spec = kept.spec.as_ref().unwrap();
        assert_eq!((spec.cluster_ip.as_deref(), spec.selector.is_some()), (Some("10.0.0.1"), true));
        assert!(kept.status.as_ref().unwrap().load_balancer.is_some());
        index.apply(&Event::Deleted(Tombstone::Last(service("new"))));
        assert!(index.get(&key("web")).is_none());
    }
}
