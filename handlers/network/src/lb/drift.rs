//! Sources of triggers for services that must be reconciled without an event of their own: their load balancer was changed, broken
//! or removed by another user or program, or their endpoints moved to another service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use staffetta_driver::Uid;
use staffetta_handler::{
    Action, HandlerError, Identity, OrderingKey, Source, Trigger, TriggerHandler, TriggerSender,
};

use super::annotation::{self, STATE_ANNOTATION};
use super::apply::LbDrivers;
use super::endpoints::ServiceKey;
use super::error::LbError;
use super::index::{EndpointIndex, ServiceIndex};
use super::records::{LbRecord, LbRecords};
use super::state::LbaasState;
use super::{DRIFTED, LbHandler, has_finalizer};
use crate::notices::Notices;

/// A trigger that reconciles the load balancer of a service again, without an event of the service.
#[derive(Clone, Debug)]
pub struct LbRecheck(Identity);

impl Trigger for LbRecheck {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// A source that detects drift: it compares the load balancers with the annotations that this process wrote on services, at an interval.
/// One list of each kind of resource serves all services. Services with an in-memory record are being reconciled and are skipped.
pub(super) struct DriftDetector {
    /// The drivers that list the load balancers and public addresses.
    pub(super) drivers: LbDrivers,
    /// The index of all services, with their annotations.
    pub(super) services: Arc<ServiceIndex>,
    /// The in-memory records of load balancers. A service that differs gets the record [`LbRecord::Unknown`].
    pub(super) records: Arc<LbRecords>,
    /// The recorder of the Events about services whose load balancer differs.
    pub(super) notices: Arc<Notices>,
    /// The time between two comparisons of the load balancers with the annotations.
    pub(super) interval: Duration,
}

impl DriftDetector {
    /// Returns the services whose load balancer or public address differs from the state in the service's annotation.
    async fn drifted(&self) -> Result<Vec<Arc<Service>>, LbError> {
        // Read before the lists: a service that changes meanwhile may be missing from them.
        let annotated: Vec<_> =
            self.services.all().into_iter().filter_map(|service| self.annotated(service)).collect();
        let marked = self.drivers.marks(None, None).await?.into_records();
        let drifted = annotated.into_iter().filter(|(service, state)| {
            self.is_unchanged(service) && !is_marked(state, marked.get(&uid(service)))
        });
        Ok(drifted.map(|(service, _)| service).collect())
    }

    /// Returns `service` with the load balancer state in its annotation. Returns `None` if this
    /// process did not write the annotation, or if the service is being deleted or reconciled.
    fn annotated(&self, service: Arc<Service>) -> Option<(Arc<Service>, LbaasState)> {
        let text = service.annotations().get(STATE_ANNOTATION)?;
        let at_rest = has_finalizer(&service)
            && service.metadata.deletion_timestamp.is_none()
            && !self.records.contains(&uid(&service))
            && self.records.has_written(&uid(&service), text);
        let state = annotation::read(text).ok().filter(|_| at_rest)?;
        Some((service, state))
    }

    /// Returns `true` if no event has replaced `service` in the index since it was taken from there, and it has no in-memory record.
    fn is_unchanged(&self, service: &Arc<Service>) -> bool {
        let present = self.services.get(&ServiceKey::of(&service.metadata));
        !self.records.contains(&uid(service)) && present.is_some_and(|present| Arc::ptr_eq(&present, service))
    }
}

fn uid(service: &Service) -> Uid {
    service.metadata.uid.as_deref().unwrap_or_default().into()
}

/// Returns `true` if the `annotated` state of a service is that of its resources with an ownership mark. `marked` contains these
/// resources; it is `None` if there are none. Returns `false` if there are two of the same kind.
fn is_marked(annotated: &LbaasState, marked: Option<&LbRecord>) -> bool {
    let marked = match marked {
        Some(LbRecord::Owned(state)) => state.clone(),
        Some(_) => return false,
        None => LbaasState::default(),
    };
    marked.merge_annotated(annotated.clone()).is_equivalent(annotated)
}

#[async_trait]
impl Source for DriftDetector {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            tokio::time::sleep(self.interval).await;
            for service in self.drifted().await? {
                let identity = Identity::of_object(&*service);
                let text =
                    "another user changed or removed the load balancer or its address; it is being restored";
                self.notices.warn(identity.clone(), DRIFTED, text.to_owned());
                // The ownership marks show the changed resources.
                self.records.set(&uid(&service), LbRecord::Unknown(None));
                sender.send(LbRecheck(identity));
            }
        }
    }
}

/// A source that sends a trigger for each service that lost endpoints to another service.
pub(super) struct MovedEndpoints {
    /// The index that detects endpoints that move to another service.
    pub(super) endpoints: Arc<EndpointIndex>,
    /// The index of all services, which has the UIDs of the services for the triggers.
    pub(super) services: Arc<ServiceIndex>,
}

#[async_trait]
impl Source for MovedEndpoints {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            for service in self.endpoints.moved().await {
                if let Some(service) = self.services.get(&service) {
                    sender.send(LbRecheck(Identity::of_object(&*service)));
                }
            }
        }
    }
}

impl TriggerHandler<LbRecheck> for LbHandler {
    type Error = LbError;

    fn key(&self, LbRecheck(service): &LbRecheck) -> OrderingKey {
        ServiceKey::new(service.namespace.as_deref(), &service.name).ordering()
    }

    async fn on_trigger(&self, LbRecheck(service): &LbRecheck) -> Result<Action, LbError> {
        let key = ServiceKey::new(service.namespace.as_deref(), &service.name);
        self.reconcile(&key).await.or_else(LbError::unless_awaited).map(Action::from)
    }
}
