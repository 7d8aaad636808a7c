//! Writes the state of a load balancer to its service: the annotation and the finalizer together,
//! and the public address in the status.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::json;
use staffetta_driver::PublicIp;
use staffetta_handler::{Identity, MetadataPatch, Written};

use super::annotation::{self, STATE_ANNOTATION};
use super::apply::Reconciliation;
use super::endpoints::ServiceKey;
use super::error::LbError;
use super::state::LbaasState;
use super::{FINALIZER, LbHandler, has_finalizer};
use crate::annotation::RESTORED;
use crate::step_error::StepContext;

/// The name of the step in which the service is written, for error messages.
pub(super) const WRITE: &str = "record the load balancer on the service";

impl LbHandler {
    /// Writes the observed state to the service. `complete` is `true` if it is the desired state; the in-memory record is removed then.
    ///
    /// A public address is removed from the status before it is removed from the annotation, and
    /// added to the status last, so that the annotation always shows which address in the status
    /// this handler wrote. The address is added once the load balancer has been active. If the
    /// service is deleted meanwhile, its resources are released.
    pub(super) async fn publish(
        &self,
        service: &Service,
        reconciliation: &mut Reconciliation<'_>,
        complete: bool,
    ) -> Result<(), LbError> {
        let Reconciliation { state, annotated, owner, .. } = &reconciliation;
        if state.is_empty() && !has_finalizer(service) {
            return Ok(());
        }
        let reachable = state.reachable();
        let mut written = Written::Done;
        if reachable.is_none() {
            written = self.write_status(service, None, annotated.public_ip.as_ref()).await?;
        }
        if written == Written::Done {
            let (text, whole) = annotation::write_bounded(state);
            let patch =
                MetadataPatch::default().annotate(STATE_ANNOTATION, text.clone()).add_finalizer(FINALIZER);
            // A status with an address is refused for good if the type of the service has changed meanwhile.
            let patch = if reachable.is_some() { patch.claim() } else { patch };
            written = self.writer.metadata(service, &self.installation.mark(patch)).await.step(WRITE)?;
            self.records.set_written(&owner.uid, Some(&*text).filter(|_| whole));
        }
        if written == Written::Done && reachable.is_some() && reconciliation.was_active {
            written = self.write_status(service, reachable, None).await?;
        }
        if written == Written::Gone {
            reconciliation.desired = None;
            return reconciliation.run().await;
        }
        if lost_annotation(service) {
            let text = format!(
                "the annotation {STATE_ANNOTATION} was missing; it was written again with the resources of the service"
            );
            self.notices.warn(Identity::of_object(service), RESTORED, text);
        }
        self.legacy.remove(&ServiceKey::of(&service.metadata));
        if complete {
            self.records.remove(&owner.uid);
        }
        Ok(())
    }

    /// Removes the public address, the annotation and the finalizer from a service that is to have
    /// no load balancer any more.
    pub(super) async fn unpublish(&self, service: &Service, annotated: &LbaasState) -> Result<(), LbError> {
        let written = self.write_status(service, None, annotated.public_ip.as_ref()).await?;
        if written == Written::Done && has_finalizer(service) {
            let patch =
                MetadataPatch::default().remove_annotation(STATE_ANNOTATION).remove_finalizer(FINALIZER);
            self.writer.metadata(service, &self.installation.unmark(patch)).await.step(WRITE)?;
        }
        Ok(())
    }

    /// Writes `public_ip` into the status of the service. If `public_ip` is `None`, the address in
    /// the status is removed, but only if it is `previous` or, for a service that is not of the type
    /// `LoadBalancer`, if the annotation names it, whoever wrote that, or was lost.
    async fn write_status(
        &self,
        service: &Service,
        public_ip: Option<&PublicIp>,
        previous: Option<&PublicIp>,
    ) -> Result<Written, LbError> {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
        let present = match ingress {
            [only] => only.ip.as_deref(),
            _ => None,
        };
        let text = |public_ip: &PublicIp| public_ip.ip.to_string();
        let is_public = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        let annotation = service.annotations().get(STATE_ANNOTATION);
        let named = annotation.and_then(|annotation| annotation::read(annotation).ok()?.public_ip);
        let is_left = lost_annotation(service) || present == named.as_ref().map(text).as_deref();
        let is_ours = present == previous.map(text).as_deref() || is_left && !is_public;
        let ingress = match public_ip.map(text) {
            Some(ip) if present == Some(&ip) => return Ok(Written::Done),
            Some(ip) => json!([{ "ip": ip }]),
            None if present.is_some() && is_ours => json!(null),
            None => return Ok(Written::Done),
        };
        let status = json!({ "loadBalancer": { "ingress": ingress } });
        Ok(self.writer.status(service, status).await.step(WRITE)?)
    }
}

/// Returns `true` if somebody removed the annotation, which is written together with the finalizer.
fn lost_annotation(service: &Service) -> bool {
    has_finalizer(service) && !service.annotations().contains_key(STATE_ANNOTATION)
}
