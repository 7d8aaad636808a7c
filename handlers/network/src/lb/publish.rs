//! Writes down what stands: the annotation with the finalizer, and the public address in the service's status.

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use staffetta_driver::PublicIp;
use staffetta_handler::{MetadataPatch, Written};

use super::annotation::{self, STATE_ANNOTATION};
use super::claims::Claim;
use super::error::LbError;
use super::index::ServiceKey;
use super::settle::Settling;
use super::standing::Standing;
use super::{FINALIZER, LbHandler, has_finalizer};

impl LbHandler {
    /// Writes down what stands; `complete` when it is all that was wanted.
    ///
    /// An address is taken out of the status before it leaves the annotation and put there after, so that the annotation
    /// always tells which address in the status is ours; it is put there once the load balancer was seen to work. A service
    /// that is gone, or goes, has what was made for it released.
    pub(super) async fn publish(
        &self,
        service: &Service,
        key: &ServiceKey,
        settling: &Settling<'_>,
        complete: bool,
    ) -> Result<(), LbError> {
        let Settling { standing, annotated, owner, .. } = settling;
        if standing.is_empty() && !has_finalizer(service) {
            return Ok(());
        }
        let reachable = standing.reachable();
        let (text, whole) = annotation::bounded(standing);
        let mut written = Written::Done;
        if reachable.is_none() {
            written = self.show(service, None, annotated.public_ip.as_ref()).await?;
        }
        if written == Written::Done {
            let patch =
                MetadataPatch::default().annotate(STATE_ANNOTATION, text.clone()).add_finalizer(FINALIZER);
            written = self.writer.metadata(service, &patch).await.map_err(LbError::Write)?;
            if whole {
                self.claims.writes(&owner.uid, &text);
            } else {
                self.claims.unwrites(&owner.uid);
            }
        }
        if written == Written::Done && reachable.is_some() && settling.works {
            written = self.show(service, reachable, None).await?;
        }
        match written {
            Written::Done => {
                self.legacy.remove(key);
                let undecided = matches!(self.claims.get(&owner.uid), Some(Claim::Asked(_)));
                if complete && !undecided {
                    self.claims.forget(&owner.uid);
                }
                Ok(())
            }
            Written::Gone => self.release(owner, annotated.clone(), standing.clone()).await,
        }
    }

    /// Takes the annotation and the finalizer away, of a service that is to have nothing any more.
    pub(super) async fn unpublish(&self, service: &Service, annotated: &Standing) -> Result<(), LbError> {
        let written = self.show(service, None, annotated.public_ip.as_ref()).await?;
        if written == Written::Done && has_finalizer(service) {
            let patch =
                MetadataPatch::default().remove_annotation(STATE_ANNOTATION).remove_finalizer(FINALIZER);
            self.writer.metadata(service, &patch).await.map_err(LbError::Write)?;
        }
        Ok(())
    }

    /// Shows the public address in the status. An address that is shown no longer is removed only if it was ours.
    async fn show(
        &self,
        service: &Service,
        reachable: Option<&PublicIp>,
        was: Option<&PublicIp>,
    ) -> Result<Written, LbError> {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
        let shown = match ingress {
            [only] => only.ip.as_deref(),
            _ => None,
        };
        let wanted = reachable.map(|public_ip| public_ip.ip.to_string());
        let ingress = match &wanted {
            Some(ip) if shown == Some(ip) => return Ok(Written::Done),
            Some(ip) => json!([{ "ip": ip }]),
            None if shown.is_some() && shown == was.map(|was| was.ip.to_string()).as_deref() => json!(null),
            None => return Ok(Written::Done),
        };
        let status = json!({ "loadBalancer": { "ingress": ingress } });
        self.writer.status(service, status).await.map_err(LbError::Write)
    }
}
