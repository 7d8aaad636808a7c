//! Detects load balancers that another user or program changed, broke or removed.
//!
//! At an interval, one list of each kind of resource is compared with the annotations that this process wrote on services.
//! Services with an in-memory record are being reconciled and are skipped. Each service that differs gets a trigger, which is
//! handled in its own queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use staffetta_driver::{PublicIp, PublicIpId, Uid};
use staffetta_handler::{
    HandlerError, Identity, OrderingKey, Source, Trigger, TriggerHandler, TriggerSender,
};

use super::annotation::{self, STATE_ANNOTATION};
use super::apply::LbDrivers;
use super::endpoints::ServiceKey;
use super::error::LbError;
use super::index::ServiceIndex;
use super::records::{LbRecord, LbRecords};
use super::state::LbaasState;
use super::{DRIFTED, LbHandler, has_finalizer};

/// A trigger for a service whose load balancer or public address differs from the annotation of the
/// service.
#[derive(Clone, Debug)]
pub struct LbDrift(Identity);

impl Trigger for LbDrift {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Compares the load balancers with the annotations that this process wrote on services, at an interval.
pub(super) struct DriftDetector {
    /// The drivers that list the load balancers and public addresses.
    pub(super) drivers: LbDrivers,
    /// The index of all services, with their annotations.
    pub(super) services: Arc<ServiceIndex>,
    /// The in-memory records; services that have one are skipped.
    pub(super) records: Arc<LbRecords>,
    /// The time between two comparisons.
    pub(super) interval: Duration,
}

impl DriftDetector {
    /// Returns the services whose load balancer or public address differs from their annotation.
    async fn drifted(&self) -> Result<Vec<Identity>, LbError> {
        // Read before the lists: a service that changes meanwhile may be missing from them.
        let annotated: Vec<_> =
            self.services.all().into_iter().filter_map(|service| self.annotated(service)).collect();
        let marks = self.drivers.marks(None, None).await?;
        let unmarked = marks.unmarked_ips();
        let marked = marks.into_records();
        let drifted = annotated.into_iter().filter(|(service, state)| {
            self.is_unchanged(service) && !is_marked(state, marked.get(&uid(service)), &unmarked)
        });
        Ok(drifted.map(|(service, _)| Identity::of_object(&*service)).collect())
    }

    /// Returns the service and the state in its annotation. Returns `None` if this process did not
    /// write the annotation, or if the service is being deleted or reconciled.
    fn annotated(&self, service: Arc<Service>) -> Option<(Arc<Service>, LbaasState)> {
        let text = service.annotations().get(STATE_ANNOTATION)?;
        let at_rest = has_finalizer(&service)
            && service.metadata.deletion_timestamp.is_none()
            && !self.records.contains(&uid(&service))
            && self.records.has_written(&uid(&service), text);
        let state = annotation::read(text).ok().filter(|_| at_rest)?;
        Some((service, state))
    }

    /// Returns `true` if the service still has the same annotation, and has no in-memory record.
    fn is_unchanged(&self, service: &Service) -> bool {
        let present = self.services.get(&ServiceKey::of(&service.metadata));
        !self.records.contains(&uid(service))
            && present.is_some_and(|present| {
                present.metadata.uid == service.metadata.uid
                    && present.annotations().get(STATE_ANNOTATION)
                        == service.annotations().get(STATE_ANNOTATION)
            })
    }
}

fn uid(service: &Service) -> Uid {
    service.metadata.uid.as_deref().unwrap_or_default().into()
}

/// Returns `true` if the resources with the service's ownership mark are exactly the `annotated`
/// state. A user-provided address carries no ownership mark; it must be among the `unmarked`
/// addresses, with the same association.
fn is_marked(
    annotated: &LbaasState,
    marked: Option<&LbRecord>,
    unmarked: &HashMap<PublicIpId, PublicIp>,
) -> bool {
    let marked = match marked {
        Some(LbRecord::Owned(state)) => state.clone(),
        Some(_) => return false,
        None => LbaasState::default(),
    };
    if !annotated.has_user_ip() {
        return annotated.is_equivalent(&marked);
    }
    let confirmed = annotated.clone().confirm_user_ip(unmarked).public_ip == annotated.public_ip;
    let without_ip = LbaasState { public_ip: None, ..annotated.clone() };
    confirmed && marked.public_ip.is_none() && without_ip.is_equivalent(&marked)
}

#[async_trait]
impl Source for DriftDetector {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            tokio::time::sleep(self.interval).await;
            for service in self.drifted().await? {
                sender.send(LbDrift(service));
            }
        }
    }
}

impl TriggerHandler<LbDrift> for LbHandler {
    type Error = LbError;

    fn key(&self, LbDrift(service): &LbDrift) -> OrderingKey {
        ServiceKey::new(service.namespace.as_deref(), &service.name).ordering()
    }

    async fn on_trigger(&self, LbDrift(service): &LbDrift) -> Result<(), LbError> {
        let key = ServiceKey::new(service.namespace.as_deref(), &service.name);
        let present = self.services.get(&key).filter(|present| uid(present).as_str() == service.uid);
        let Some(present) = present else { return Ok(()) };
        // The annotation was just written; the next comparison decides.
        if self.writer.is_stale(&present) {
            return Ok(());
        }
        // With a record, an earlier attempt is not complete yet, and the drift is not news.
        if !self.records.contains(&uid(&present)) {
            let text =
                "another user changed or removed the load balancer or its address; it is being restored";
            self.notices.warn(service.clone(), DRIFTED, text.to_owned());
            // The ownership marks show the changed resources.
            self.records.set(&uid(&present), LbRecord::Unknown(None));
        }
        self.reconcile(&key).await
    }
}
