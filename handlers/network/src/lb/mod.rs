//! The handler `lb`: gives every service the load balancer that its spec describes, and releases it
//! with the service.
//!
//! A service, its slices and its `Endpoints` share one queue. Whichever of them changed, the whole
//! service is reconciled: `desired` computes the desired state from spec and endpoints, `plan` the
//! steps from the observed state, and `apply` calls the drivers. Then `publish` writes annotation
//! and finalizer in one patch, and the public address once the load balancer is active.

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
    Event, Identity, OrderingKey, Recorder, Registration, ResourceEventHandler, Superseded, Tombstone, Writer,
};

use self::drift::DriftDetector;
use self::endpoints::{EndpointsKind, ServiceKey};
use self::index::{EndpointIndex, ServiceIndex};
use self::records::LbRecords;
use crate::lbaasspec::{LbaasServiceSpec, SPEC_ANNOTATION};
use crate::notices::Notices;
use crate::observers::observe_namespaces;

pub use self::annotation::STATE_ANNOTATION;
pub use self::apply::LbDrivers;
pub use self::drift::LbDrift;
pub use self::error::LbError;
pub use self::options::LoadBalancerOptions;
pub use self::settings::{CLIENT_TIMEOUT_ANNOTATION, MEMBER_TIMEOUT_ANNOTATION};

/// The finalizer that keeps a service until its load balancer is released.
pub const FINALIZER: &str = "staffetta.dev/lb";

/// The reason of the Event for features that the load balancer lacks.
pub(crate) const LACKS: &str = "LoadBalancerLacks";
/// The reason of the Event for a broken load balancer that is replaced.
pub(crate) const REPLACED: &str = "LoadBalancerReplaced";
/// The reason of the Event for a load balancer that was changed or removed outside.
pub(crate) const DRIFTED: &str = "LoadBalancerDrifted";

/// The handler `lb`.
pub struct LbHandler {
    client: Client,
    drivers: LbDrivers,
    options: LoadBalancerOptions,
    notices: Notices,
    writer: Writer<Service>,
    services: Arc<ServiceIndex>,
    endpoints: Arc<EndpointIndex>,
    records: Arc<LbRecords>,
    /// The state annotations that older controllers left on `Endpoints`.
    legacy: DashMap<ServiceKey, String>,
}

impl LbHandler {
    /// Creates the handler; it writes through `client` and records Events through `recorder`.
    pub fn new(client: Client, drivers: LbDrivers, options: LoadBalancerOptions, recorder: Recorder) -> Self {
        Self {
            writer: Writer::new(client.clone()),
            client,
            drivers,
            options,
            notices: Notices::new("lb", recorder),
            services: Arc::default(),
            endpoints: Arc::default(),
            records: Arc::default(),
            legacy: DashMap::new(),
        }
    }

    /// Registers the handler for services and their endpoints: slices, or `Endpoints` if the server
    /// does not have slices. Adds garbage collection, drift detection and, if the driver observes
    /// them, namespaces.
    pub fn registration(self, has_slices: bool) -> Registration<Self> {
        let (services, endpoints) = (Arc::clone(&self.services), Arc::clone(&self.endpoints));
        let detector = self.options.check_interval().map(|interval| DriftDetector {
            drivers: self.drivers.clone(),
            services: Arc::clone(&self.services),
            records: Arc::clone(&self.records),
            interval,
        });
        let namespaces = self.drivers.load_balancer.namespaces();
        let mut registration = Registration::new(self)
            .on::<Service>()
            .on_trigger::<LbDrift>()
            .index::<Service>(services)
            .superseded(Superseded::BySameKey)
            .garbage_collector();
        registration = observe_namespaces(registration, [namespaces]);
        if let Some(detector) = detector {
            registration = registration.source(detector);
        }
        if has_slices {
            registration.on::<EndpointSlice>().index::<EndpointSlice>(endpoints)
        } else {
            registration.on::<Endpoints>().index::<Endpoints>(endpoints)
        }
    }

    /// Reconciles the service of an endpoints object. An error is reported on the service.
    async fn reconcile_service_of(&self, uid: &str) -> Result<(), LbError> {
        let Some(key) = self.endpoints.service_of(uid) else { return Ok(()) };
        let Err(error) = self.reconcile(&key).await else { return Ok(()) };
        let service = self.services.get(&key).map(|service| Box::new(Identity::of_object(&*service)));
        Err(match service {
            Some(service) => LbError::Service { service, source: Box::new(error) },
            None => error,
        })
    }

    /// Like [`reconcile_service_of`](Self::reconcile_service_of) for endpoints that are deleted.
    /// Nothing supersedes a deletion, so it must not wait for an event that is queued behind it;
    /// that event reconciles the service with all endpoints.
    async fn reconcile_without(&self, uid: &str) -> Result<(), LbError> {
        match self.reconcile_service_of(uid).await {
            Err(error) if error.awaits_event() => Ok(()),
            reconciled => reconciled,
        }
    }
}

/// Returns `true` if the spec of a service that is not being deleted is outdated. The event of its
/// correction follows.
fn awaits_spec(service: &Service) -> bool {
    service.metadata.deletion_timestamp.is_none()
        && LbaasServiceSpec::of(service).is_ok_and(|spec| spec.is_some_and(|spec| !spec.matches(service)))
}

/// Returns `true` if the service has our finalizer.
fn has_finalizer(service: &Service) -> bool {
    service.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

impl ResourceEventHandler<Service> for LbHandler {
    type Error = LbError;

    fn wants(&self, event: &Event<Service>) -> bool {
        let Some(service) = event.object() else { return true };
        let annotated = |key| service.annotations().contains_key(key);
        let concerned = annotated(SPEC_ANNOTATION) || annotated(STATE_ANNOTATION) || self.is_managed(service);
        concerned && !awaits_spec(service)
    }

    fn key(&self, event: &Event<Service>) -> OrderingKey {
        let object_ref = event.object_ref();
        ServiceKey::new(object_ref.namespace, object_ref.name).ordering()
    }

    async fn on_present(&self, service: &Arc<Service>) -> Result<(), LbError> {
        self.reconcile(&ServiceKey::of(&service.metadata)).await
    }

    async fn on_finalize(&self, service: &Arc<Service>) -> Result<(), LbError> {
        if self.writer.is_stale(service) { Ok(()) } else { self.finalize(service).await }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Service>) -> Result<(), LbError> {
        self.release_deleted(tombstone).await
    }
}

impl<K: EndpointsKind> ResourceEventHandler<K> for LbHandler {
    type Error = LbError;

    /// Only services with a load balancer are concerned. Deletions are always handled, to remove
    /// them from the index.
    fn wants(&self, event: &Event<K>) -> bool {
        let Some(key) = self.endpoints.service_of(event.uid()) else { return false };
        matches!(event, Event::Deleted(_))
            || self.services.get(&key).is_some_and(|service| {
                service.annotations().contains_key(SPEC_ANNOTATION) && !awaits_spec(&service)
            })
    }

    fn key(&self, event: &Event<K>) -> OrderingKey {
        match self.endpoints.service_of(event.uid()) {
            Some(service) => service.ordering(),
            None => OrderingKey::of(event.uid()),
        }
    }

    async fn on_present(&self, object: &Arc<K>) -> Result<(), LbError> {
        self.reconcile_service_of(object.meta().uid.as_deref().unwrap_or_default()).await
    }

    async fn on_finalize(&self, object: &Arc<K>) -> Result<(), LbError> {
        self.reconcile_without(object.meta().uid.as_deref().unwrap_or_default()).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<K>) -> Result<(), LbError> {
        let uid = tombstone.object_ref().uid;
        self.reconcile_without(uid).await?;
        self.endpoints.forget(uid);
        Ok(())
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
