//! Reconciles services: computes the desired state, applies it, and releases resources that are no
//! longer needed.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use staffetta_driver::{LoadBalancer, NormalizedSpec, Owner, ProvisioningStatus};
use staffetta_handler::{Failure, Identity, MetadataPatch, Tombstone};

use super::annotation::{self, STATE_ANNOTATION};
use super::apply::{LOAD_BALANCER_STEP, Reconciliation};
use super::desired::DesiredState;
use super::endpoints::ServiceKey;
use super::error::LbError;
use super::publish::WRITE;
use super::records::LbRecord;
use super::settings::ServiceSettings;
use super::state::LbaasState;
use super::{FINALIZER, LbHandler, REPLACED, UNSUPPORTED_FEATURES, has_finalizer};
use crate::lbaasspec::{LbaasServiceSpec, gets_load_balancer};
use crate::owners::owner_of;
use crate::step_error::{AWAIT_OWN_WRITE, StepContext};

impl LbHandler {
    /// Reconciles the load balancer of a service with its desired state. Does nothing if the service does not exist or is being
    /// deleted, if Kuryr or another installation manages it, or if it is neither selected nor managed yet.
    pub(super) async fn reconcile(&self, key: &ServiceKey) -> Result<(), LbError> {
        // A deleted service is handled by its own event.
        let present = self.services.get(key).filter(|service| service.metadata.deletion_timestamp.is_none());
        let present = present.filter(|service| self.installation.managed_notice(&**service).is_none());
        let Some(service) = present else { return Ok(()) };
        let is_selected = self.installation.selects(&*service);
        if !is_selected && !self.is_managed(&service) {
            return Ok(());
        }
        self.writer.fresh(&service).step(AWAIT_OWN_WRITE)?;
        let owner = Owner::of(&service.metadata);
        if !is_selected && !self.has_load_balancer(&service, &owner).await? {
            return self.release(&service, &owner).await;
        }
        // They hold its address.
        for predecessor in self.records.predecessors(key, &owner.uid) {
            self.release_missed(&predecessor).await?;
        }
        let Some(spec) =
            LbaasServiceSpec::of(&service).step("read the load balancer specification of the service")?
        else {
            // Others can remove the annotation; the service itself says whether it has a load balancer.
            return match (self.is_managed(&service), gets_load_balancer(&service)) {
                (true, false) => self.release(&service, &owner).await,
                (true, true) => Err(LbError::Outdated),
                (false, _) => Ok(()),
            };
        };
        if !spec.matches(&service) {
            return Err(LbError::Outdated);
        }
        let Some(spec) = self.drivers.placement.spec(&service).await? else { return Ok(()) };
        let annotated = self.annotated(&service)?;
        let is_foreign = annotated.unmarked && !self.options.adopt_unmarked;
        let desired = self.desired(&service, &owner, &spec, annotated.load_balancer.as_ref()).await?;
        let is_untrusted = is_foreign || self.is_untrusted(&service, &owner);
        let mut reconciliation = self.start(&owner, Some(desired), annotated.clone(), is_untrusted).await?;
        if is_foreign && !annotated.is_among(&reconciliation.state) {
            return Err(LbError::Unmarked);
        }
        let applied = reconciliation.run().await;
        if reconciliation.is_replaced {
            let text = "the load balancer is in the state ERROR and is being replaced";
            self.notices.warn(Identity::of_object(&*service), REPLACED, text.to_owned());
        }
        match &applied {
            Ok(()) => {
                self.publish(&service, &mut reconciliation, true).await?;
                reconciliation.check_unserved()
            }
            // The annotation of Kuryr stays until all resources carry marks, because nothing else
            // names them.
            Err(_) if reconciliation.state.unmarked => applied,
            // A partial state is published if the failure is permanent, if only time is missing, or
            // if only the public address failed.
            Err(error)
                if !error.transient()
                    || reconciliation.is_complete
                    || matches!(error, LbError::PublicIp(_)) =>
            {
                let published = self.publish(&service, &mut reconciliation, false).await;
                applied.and(published)
            }
            Err(_) => applied,
        }
    }

    /// Computes the desired state of a service, without features that the driver does not support.
    /// `published` is the load balancer in the annotation.
    async fn desired(
        &self,
        service: &Service,
        owner: &Owner,
        spec: &LbaasServiceSpec,
        published: Option<&LoadBalancer>,
    ) -> Result<DesiredState, LbError> {
        let endpoints = self.endpoints.of(&ServiceKey::of(&service.metadata));
        let settings = ServiceSettings::of(service)?;
        let desired = DesiredState::of(owner, spec, (&settings, &self.options), &endpoints);
        let desired = desired.keep_members_of_renamed_ports(spec, &endpoints, published);
        let feasible = self.drivers.load_balancer.normalize(desired.load_balancer).await;
        let NormalizedSpec { spec, without } = feasible.step(LOAD_BALANCER_STEP)?;
        let missing = without.join(", ");
        let text = format!("the load balancer does not support {missing}; the service works without it");
        let condition = (!without.is_empty()).then_some(text);
        self.notices.set_condition(Identity::of_object(service), UNSUPPORTED_FEATURES, condition);
        Ok(DesiredState { load_balancer: spec, ..desired })
    }

    /// Returns the state in the annotation of the service or, if an older controller wrote it, of
    /// the service's `Endpoints`. Without an annotation, the state is empty.
    fn annotated(&self, service: &Service) -> Result<LbaasState, LbError> {
        let legacy = self.legacy.get(&ServiceKey::of(&service.metadata)).map(|text| text.clone());
        let Some(text) = service.annotations().get(STATE_ANNOTATION).cloned().or(legacy) else {
            return Ok(LbaasState::default());
        };
        let state = annotation::read(&text).step("read the load balancer state of the service")?;
        // Without our finalizer, the annotation was written by another program.
        Ok(LbaasState { unmarked: !has_finalizer(service) && !state.is_empty(), ..state })
    }

    /// Returns `true` if the service has the finalizer of this handler, but not the annotation that
    /// this process wrote: other users may have changed or removed it, so it is not trusted.
    fn is_untrusted(&self, service: &Service, owner: &Owner) -> bool {
        let text = service.annotations().get(STATE_ANNOTATION).map(String::as_str).unwrap_or_default();
        has_finalizer(service) && !self.records.has_written(&owner.uid, text)
    }

    /// Starts a reconciliation from the state in the in-memory record or, without a record, from `annotated`, the state in the
    /// annotation. The ownership marks are read instead if the record does not contain the state, or if there is no record and
    /// the annotation `is_untrusted`.
    async fn start<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Option<DesiredState>,
        annotated: LbaasState,
        is_untrusted: bool,
    ) -> Result<Reconciliation<'a>, LbError> {
        // Unmarked resources are adopted if desired and allowed, and never released.
        let ignored = annotated.unmarked && (desired.is_none() || !self.options.adopt_unmarked);
        let annotated = if ignored { LbaasState::default() } else { annotated };
        let mut reconciliation = Reconciliation {
            drivers: &self.drivers,
            records: &self.records,
            owner,
            desired,
            state: LbaasState::default(),
            annotated: annotated.clone(),
            unserved: Vec::new(),
            was_active: false,
            is_complete: false,
            is_replaced: false,
        };
        let state = match self.records.get(&owner.uid) {
            Some(LbRecord::Known(state)) => state,
            Some(LbRecord::Owned(state)) => state.merge_annotated(annotated),
            Some(LbRecord::Unknown(public_ip)) => reconciliation.read_marks(public_ip).await?,
            None if is_untrusted => reconciliation.read_marks(None).await?,
            None => annotated,
        };
        if state.status() == Some(ProvisioningStatus::Active) {
            reconciliation.note_active();
        }
        reconciliation.state = state;
        Ok(reconciliation)
    }

    /// Releases the load balancer of a service that is to have none any more, and removes the
    /// annotation and the finalizer.
    async fn release(&self, service: &Service, owner: &Owner) -> Result<(), LbError> {
        let annotated = self.annotated(service)?;
        let mut reconciliation =
            self.start(owner, None, annotated, self.is_untrusted(service, owner)).await?;
        reconciliation.run().await?;
        self.unpublish(service, &reconciliation.annotated).await?;
        self.records.forget(&owner.uid);
        self.notices.forget(owner.uid.as_str());
        Ok(())
    }

    /// Releases the load balancer of a service that is being deleted, and removes the finalizer of
    /// this handler.
    pub(super) async fn finalize(&self, service: &Service) -> Result<(), LbError> {
        if !self.is_managed(service) {
            return Ok(());
        }
        self.release_by_state(service, &Owner::of(&service.metadata)).await?;
        let patch = MetadataPatch::default().remove_finalizer(FINALIZER);
        self.writer.metadata(service, &self.installation.unmark(patch)).await.step(WRITE)?;
        Ok(())
    }

    /// Releases the load balancer and the public address of a deleted service, if this program may have created them, and then removes
    /// everything that is stored in memory about the service.
    pub(super) async fn release_deleted(&self, tombstone: &Tombstone<Service>) -> Result<(), LbError> {
        let owner = owner_of(tombstone);
        match tombstone {
            Tombstone::Last(service) => {
                if self.is_managed(service) {
                    self.release_by_state(service, &owner).await?;
                }
            }
            Tombstone::Missed(_) => self.release_missed(&owner).await?,
        }
        self.records.forget_owner(&owner);
        self.legacy.remove(&ServiceKey::new(Some(&owner.namespace), &owner.name));
        self.records.forget(&owner.uid);
        self.notices.forget(owner.uid.as_str());
        self.writer.forget(owner.uid.as_str());
        Ok(())
    }

    /// Releases the load balancer and the public address of a service that does not exist any more and whose last state is not known.
    async fn release_missed(&self, owner: &Owner) -> Result<(), LbError> {
        if self.records.get(&owner.uid) != Some(LbRecord::Known(LbaasState::default())) {
            self.records.set(&owner.uid, LbRecord::Unknown(None));
            self.start(owner, None, LbaasState::default(), false).await?.run().await?;
        }
        self.records.forget(&owner.uid);
        self.records.forget_owner(owner);
        Ok(())
    }

    /// Releases the load balancer and the public address that the in-memory record, the annotation or
    /// the ownership marks of the service name. The record then contains the empty state until the
    /// service is deleted.
    async fn release_by_state(&self, service: &Service, owner: &Owner) -> Result<(), LbError> {
        let text = service.annotations().get(STATE_ANNOTATION);
        // A malformed annotation must not block the deletion.
        let annotated = text.and_then(|text| annotation::read(text).ok()).unwrap_or_default();
        self.start(owner, None, annotated, self.is_untrusted(service, owner)).await?.run().await?;
        self.records.set(&owner.uid, LbRecord::Known(LbaasState::default()));
        Ok(())
    }

    /// Returns `true` if the service has a load balancer of ours, as the record of this process or the ownership marks say: others may
    /// have added the finalizer.
    async fn has_load_balancer(&self, service: &Service, owner: &Owner) -> Result<bool, LbError> {
        let (annotated, is_untrusted) = (self.annotated(service)?, self.is_untrusted(service, owner));
        Ok(!self.start(owner, None, annotated, is_untrusted).await?.state.is_empty())
    }

    /// Returns `true` if this program may have created resources for the service: the service has
    /// the finalizer of this handler, and is not managed by another installation, or it has an in-memory record.
    pub(super) fn is_managed(&self, service: &Service) -> bool {
        has_finalizer(service) && self.installation.other(service).is_none()
            || self.records.contains(&Owner::of(&service.metadata).uid)
    }
}
