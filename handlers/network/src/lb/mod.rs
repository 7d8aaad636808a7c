//! The handler `lb`: creates a load balancer for every service with the annotation
//! `openstack.org/kuryr-lbaas-spec`, and releases it when the service is deleted.
//!
//! A service, its `EndpointSlice`s and its `Endpoints` share one queue. An event of any of them
//! reconciles the whole service. The annotation with the spec only requests the load balancer: its
//! contents come from the service and from the drivers, because others may write the annotation.
//! The module `desired` computes the desired state from the spec and the endpoints. `plan` computes
//! the steps from the observed state to the desired one, and `apply` calls the drivers. Then
//! `publish` writes the annotation and the finalizer in one patch, and the public address into the
//! status once the load balancer is active.

mod annotation;
mod apply;
mod desired;
mod drift;
mod endpoints;
mod error;
mod index;
mod options;
mod plan;
mod publish;
mod reconcile;
mod records;
mod recovery;
mod settings;
mod state;
mod steps;

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, ResourceExt};
use staffetta_handler::{
    Action, Event, Identity, Interest, OrderingKey, Recorder, Registration, ResourceEventHandler, Tombstone,
    Writer,
};

use self::drift::{DriftDetector, MovedEndpoints};
use self::endpoints::{EndpointsKind, ServiceKey};
use self::index::{EndpointIndex, ServiceIndex};
use self::records::LbRecords;
use crate::installation::Installation;
use crate::lbaasspec::{LbaasServiceSpec, SPEC_ANNOTATION, gets_load_balancer};
use crate::notices::Notices;
use crate::observers::observe_namespaces;

pub use self::annotation::{STATE_ANNOTATION, annotation_of_status, resources_of_annotation};
pub use self::apply::LbDrivers;
pub use self::drift::LbRecheck;
pub use self::error::LbError;
pub use self::options::LoadBalancerOptions;
pub use self::settings::{CLIENT_TIMEOUT_ANNOTATION, MEMBER_TIMEOUT_ANNOTATION};
pub use crate::lbaasspec::LB_FINALIZER as FINALIZER;

/// The reason of the Event for features that a service requests and its load balancer does not
/// support.
pub(crate) const UNSUPPORTED_FEATURES: &str = "LoadBalancerLacks";
/// The reason of the Event for a broken load balancer that is replaced.
pub(crate) const REPLACED: &str = "LoadBalancerReplaced";
/// The reason of the Event for a load balancer that another user or program changed or removed.
pub(crate) const DRIFTED: &str = "LoadBalancerDrifted";

/// The handler `lb`, which creates the load balancers of services.
pub struct LbHandler {
    client: Client,
    drivers: LbDrivers,
    options: LoadBalancerOptions,
    notices: Arc<Notices>,
    writer: Writer<Service>,
    services: Arc<ServiceIndex>,
    endpoints: Arc<EndpointIndex>,
    records: Arc<LbRecords>,
    /// The values of the annotation [`STATE_ANNOTATION`] that older controllers left on `Endpoints`, by service.
    legacy: DashMap<ServiceKey, String>,
    installation: Installation,
}

impl LbHandler {
    /// Creates the handler. It writes annotations and the status through `client`, and records
    /// Events through `recorder`.
    pub fn new(client: Client, drivers: LbDrivers, options: LoadBalancerOptions, recorder: Recorder) -> Self {
        Self {
            writer: Writer::new(client.clone()),
            client,
            drivers,
            options,
            notices: Arc::new(Notices::new("lb", recorder)),
            services: Arc::default(),
            endpoints: Arc::default(),
            records: Arc::default(),
            legacy: DashMap::new(),
            installation: Installation::default(),
        }
    }

    /// Makes the handler one of this installation. It leaves alone the services that the installation does not select and that it does not
    /// manage yet, also when their endpoints change. If such a service is selected later, that has no effect before the next event of the
    /// service or of its endpoints.
    #[must_use]
    pub fn managed_by(self, installation: Installation) -> Self {
        Self { installation, ..self }
    }

    /// Registers the handler for services and their endpoints: for `EndpointSlice`s if the API
    /// server has them (`has_slices`), otherwise for `Endpoints`. Adds garbage collection, drift
    /// detection and, if a driver observes namespaces, an index of namespaces.
    pub fn registration(self, has_slices: bool) -> Registration<Self> {
        let (services, endpoints) = (Arc::clone(&self.services), Arc::clone(&self.endpoints));
        let detector = self.options.check_interval().map(|interval| DriftDetector {
            drivers: self.drivers.clone(),
            services: Arc::clone(&self.services),
            records: Arc::clone(&self.records),
            notices: Arc::clone(&self.notices),
            interval,
        });
        let moved = MovedEndpoints { endpoints: Arc::clone(&endpoints), services: Arc::clone(&services) };
        let LbDrivers { load_balancer, placement, .. } = &self.drivers;
        let namespaces = [load_balancer.namespaces(), placement.project.namespaces()];
        let mut registration = Registration::new(self)
            .on::<Service>()
            .on_trigger::<LbRecheck>()
            .index::<Service>(services)
            .superseded_by_key()
            .keeps_unselected()
            .garbage_collector();
        registration = observe_namespaces(registration, namespaces);
        if let Some(detector) = detector {
            registration = registration.source(detector);
        }
        registration = registration.source(moved);
        if has_slices {
            registration.on::<EndpointSlice>().index::<EndpointSlice>(endpoints)
        } else {
            registration.on::<Endpoints>().index::<Endpoints>(endpoints)
        }
    }

    /// Reconciles the service of the endpoints object with this UID. An error is reported on the
    /// service.
    async fn reconcile_service_of(&self, uid: &str) -> Result<(), LbError> {
        let Some(key) = self.endpoints.service_of(uid) else { return Ok(()) };
        let Err(error) = self.reconcile(&key).await else { return Ok(()) };
        let service = self.services.get(&key).map(|service| Box::new(Identity::of_object(&*service)));
        Err(match service {
            Some(service) => LbError::Service { service, source: Box::new(error) },
            None => error,
        })
    }
}

/// Returns [`Interest::Deferred`] for a service whose annotation with the spec is outdated or missing, unless
/// the service is being deleted or gets no load balancer; otherwise [`Interest::Taken`]. The handler `lbaasspec` updates the
/// annotation, and the event of the update will follow. It writes no missing one for a service that is not selected.
fn unless_outdated(service: &Service, is_selected: bool) -> Interest {
    let is_deleted = service.metadata.deletion_timestamp.is_some();
    let is_outdated = LbaasServiceSpec::of(service).is_ok_and(|spec| match spec {
        Some(spec) => !spec.matches(service),
        None => is_selected && gets_load_balancer(service),
    });
    if is_outdated && !is_deleted {
        return Interest::Deferred(
            "the spec of its load balancer is outdated; the handler lbaasspec writes it first",
        );
    }
    Interest::Taken
}

/// Returns `true` if the service has the finalizer of this handler.
fn has_finalizer(service: &Service) -> bool {
    service.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

impl ResourceEventHandler<Service> for LbHandler {
    type Error = LbError;

    fn wants(&self, event: &Event<Service>) -> Interest {
        let Some(service) = event.object() else { return Interest::Taken };
        let annotated = |key| service.annotations().contains_key(key);
        let concerned = annotated(SPEC_ANNOTATION) || annotated(STATE_ANNOTATION) || self.is_managed(service);
        if !concerned {
            return Interest::Declined(
                "it has no spec of a load balancer, which the handler lbaasspec writes",
            );
        }
        unless_outdated(service, self.installation.selects(&**service))
    }

    fn key(&self, event: &Event<Service>) -> OrderingKey {
        let object_ref = event.object_ref();
        ServiceKey::new(object_ref.namespace, object_ref.name).ordering()
    }

    async fn on_present(&self, service: &Arc<Service>) -> Result<Action, LbError> {
        self.reconcile(&ServiceKey::of(&service.metadata)).await.map(Action::from)
    }

    async fn on_finalize(&self, service: &Arc<Service>) -> Result<Action, LbError> {
        if self.writer.fresh(service).is_err() {
            Ok(Action::done())
        } else {
            self.finalize(service).await.map(Action::from)
        }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Service>) -> Result<Action, LbError> {
        self.release_deleted(tombstone).await.map(Action::from)
    }
}

impl<K: EndpointsKind> ResourceEventHandler<K> for LbHandler {
    type Error = LbError;

    /// Takes, or defers while the spec is outdated, the endpoints of a service that has the annotation with the spec; declines all
    /// others. The deletion of endpoints of any service is taken, so that the object is removed from the index.
    fn wants(&self, event: &Event<K>) -> Interest {
        let Some(key) = self.endpoints.service_of(event.uid()) else {
            return Interest::Declined("it belongs to no service");
        };
        let service = self.services.get(&key);
        match service {
            _ if matches!(event, Event::Deleted(_)) => Interest::Taken,
            Some(service) if service.annotations().contains_key(SPEC_ANNOTATION) => {
                unless_outdated(&service, self.installation.selects(&*service))
            }
            _ => Interest::Declined(
                "its service has no spec of a load balancer, which the handler lbaasspec writes",
            ),
        }
    }

    fn key(&self, event: &Event<K>) -> OrderingKey {
        match self.endpoints.service_of(event.uid()) {
            Some(service) => service.ordering(),
            None => OrderingKey::of(event.uid()),
        }
    }

    async fn on_present(&self, object: &Arc<K>) -> Result<Action, LbError> {
        self.reconcile_service_of(object.meta().uid.as_deref().unwrap_or_default()).await.map(Action::from)
    }

    async fn on_finalize(&self, object: &Arc<K>) -> Result<Action, LbError> {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        self.reconcile_service_of(uid).await.or_else(LbError::unless_awaited).map(Action::from)
    }

    async fn on_deleted(&self, tombstone: &Tombstone<K>) -> Result<Action, LbError> {
        let uid = tombstone.object_ref().uid;
        self.reconcile_service_of(uid).await.or_else(LbError::unless_awaited)?;
        self.endpoints.forget(uid);
        Ok(Action::done())
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
