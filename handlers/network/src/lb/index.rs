//! What the handler keeps of services and their endpoints, so that it never asks for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Endpoints, Service, ServiceStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use staffetta_handler::{Event, Index, OrderingKey};

use super::annotation::STATE_ANNOTATION;
use super::asked::Asked;
use super::endpoints::{EndpointSet, of_endpoints, of_slice};
use crate::lbaasspec::{SPEC_ANNOTATION, stating};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A service by its namespace and name: what services, slices and endpoints have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ServiceKey {
    pub(super) fn new(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: namespace.unwrap_or_default().to_owned(), name: name.to_owned() }
    }

    pub(super) fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    pub(super) fn ordering(&self) -> OrderingKey {
        OrderingKey::of((&self.namespace, &self.name))
    }
}

/// Of each service the metadata that is ours, what it says and asks of its load balancer, and the public address that it shows.
#[derive(Default)]
pub(super) struct ServiceIndex(DashMap<ServiceKey, Arc<Service>>);

impl ServiceIndex {
    pub(super) fn get(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.0.get(key).map(|service| Arc::clone(&service))
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Service>> {
        self.0.iter().map(|service| Arc::clone(&service)).collect()
    }
}

impl Index<Service> for ServiceIndex {
    fn apply(&self, event: &Event<Service>) {
        match event {
            Event::Added(service) | Event::Modified(service) => {
                self.0.insert(ServiceKey::of(&service.metadata), Arc::new(trimmed(service)));
            }
            Event::Deleted(tombstone) => {
                let subject = tombstone.subject();
                let key = ServiceKey::new(subject.namespace, subject.name);
                self.0.remove_if(&key, |_, service| service.uid().as_deref() == Some(subject.uid));
            }
        }
    }
}

fn trimmed(service: &Service) -> Service {
    let meta = &service.metadata;
    let ours = |key: &String| key == SPEC_ANNOTATION || key == STATE_ANNOTATION || Asked::is_annotation(key);
    let annotations = meta.annotations.iter().flatten().filter(|(key, _)| ours(key));
    let annotations: std::collections::BTreeMap<_, _> =
        annotations.map(|(key, value)| (key.clone(), value.clone())).collect();
    let load_balancer = service.status.as_ref().and_then(|status| status.load_balancer.clone());
    Service {
        metadata: ObjectMeta {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            deletion_timestamp: meta.deletion_timestamp.clone(),
            finalizers: meta.finalizers.clone(),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        spec: service.spec.as_ref().map(|spec| Asked::fields(spec, stating(spec))),
        status: load_balancer.map(|load_balancer| ServiceStatus {
            load_balancer: Some(load_balancer),
            ..ServiceStatus::default()
        }),
    }
}

/// The endpoints of each service, by the UID of the object that tells of them.
#[derive(Default)]
pub(super) struct EndpointIndex(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// To which service an object belongs. It is remembered until the object's deletion was handled.
    services: HashMap<String, ServiceKey>,
    endpoints: HashMap<ServiceKey, HashMap<String, Arc<Vec<EndpointSet>>>>,
}

impl EndpointIndex {
    /// What is told of the service's endpoints, in no order.
    pub(super) fn of(&self, service: &ServiceKey) -> Vec<Arc<Vec<EndpointSet>>> {
        self.told().endpoints.get(service).into_iter().flat_map(HashMap::values).map(Arc::clone).collect()
    }

    /// The service to which the object with this UID belongs, or belonged.
    pub(super) fn service_of(&self, uid: &str) -> Option<ServiceKey> {
        self.told().services.get(uid).cloned()
    }

    /// The deletion of the object with this UID was handled.
    pub(super) fn forget(&self, uid: &str) {
        self.told().services.remove(uid);
    }

    fn tell(&self, uid: Option<String>, service: ServiceKey, endpoints: Vec<EndpointSet>) {
        let uid = uid.unwrap_or_default();
        let mut told = self.told();
        told.retract(&uid);
        told.services.insert(uid.clone(), service.clone());
        told.endpoints.entry(service).or_default().insert(uid, Arc::new(endpoints));
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn retract(&mut self, uid: &str) {
        let Some(service) = self.services.get(uid) else { return };
        if let Some(told) = self.endpoints.get_mut(service) {
            told.remove(uid);
            if told.is_empty() {
                self.endpoints.remove(service);
            }
        }
    }
}

impl Index<EndpointSlice> for EndpointIndex {
    fn apply(&self, event: &Event<EndpointSlice>) {
        match event {
            Event::Added(slice) | Event::Modified(slice) => match service_of_slice(slice) {
                Some(service) => self.tell(slice.uid(), service, of_slice(slice)),
                None => self.told().retract(slice.metadata.uid.as_deref().unwrap_or_default()),
            },
            Event::Deleted(tombstone) => self.told().retract(tombstone.subject().uid),
        }
    }
}

impl Index<Endpoints> for EndpointIndex {
    fn apply(&self, event: &Event<Endpoints>) {
        match event {
            Event::Added(endpoints) | Event::Modified(endpoints) => {
                self.tell(endpoints.uid(), ServiceKey::of(&endpoints.metadata), of_endpoints(endpoints));
            }
            Event::Deleted(tombstone) => self.told().retract(tombstone.subject().uid),
        }
    }
}

/// The service that a slice names.
pub(super) fn service_of_slice(slice: &EndpointSlice) -> Option<ServiceKey> {
    let name = slice.labels().get(SERVICE_NAME)?;
    Some(ServiceKey::new(slice.metadata.namespace.as_deref(), name))
}

#[cfg(test)]
mod tests {
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
    fn a_slice_that_went_unseen_is_known_by_its_service_until_that_was_handled() {
        let index = EndpointIndex::default();
        index.apply(&Event::Added(slice("s1", Some("web"), "10.1.0.1")));
        index.apply(&missed("s1"));
        assert!(index.of(&key("web")).is_empty());
        assert_eq!(index.service_of("s1"), Some(key("web")));
        index.forget("s1");
        assert_eq!(index.service_of("s1"), None);
    }

    #[test]
    fn a_slice_that_changes_its_service_leaves_nothing_with_the_old_one() {
        let index = EndpointIndex::default();
        index.apply(&Event::Added(slice("s1", Some("web"), "10.1.0.1")));
        index.apply(&Event::Modified(slice("s1", Some("other"), "10.1.0.1")));
        assert_eq!((index.of(&key("web")).len(), index.of(&key("other")).len()), (0, 1));
        index.apply(&Event::Modified(slice("s1", None, "10.1.0.1")));
        assert_eq!(index.of(&key("other")).len(), 0);
    }

    #[test]
    fn of_a_service_only_what_is_ours_is_kept_and_a_late_deletion_of_a_namesake_is_none() {
        let service = |uid: &str| {
            let service = json!({ "metadata": { "namespace": "default", "name": "web", "uid": uid, "labels": { "a": "b" },
                    "finalizers": ["x/y"], "annotations": { "mine": "1", SPEC_ANNOTATION: "spec" } },
                "spec": { "clusterIP": "10.0.0.1", "selector": { "app": "web" } },
                "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
            Arc::new(serde_json::from_value::<Service>(service).unwrap())
        };
        let index = ServiceIndex::default();
        index.apply(&Event::Added(service("new")));
        index.apply(&Event::Deleted(Tombstone::Last(service("old"))));
        let kept = index.get(&key("web")).unwrap();
        assert_eq!(kept.annotations().keys().collect::<Vec<_>>(), [SPEC_ANNOTATION]);
        assert_eq!((kept.labels().is_empty(), kept.finalizers()), (true, &["x/y".to_owned()][..]));
        let spec = kept.spec.as_ref().unwrap();
        assert_eq!((spec.cluster_ip.as_deref(), &spec.selector), (Some("10.0.0.1"), &None));
        assert!(kept.status.as_ref().unwrap().load_balancer.is_some());
        index.apply(&Event::Deleted(Tombstone::Last(service("new"))));
        assert!(index.get(&key("web")).is_none());
    }
}
