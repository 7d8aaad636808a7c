//! Gives everything back that was made for a service.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use staffetta_driver::Owner;
use staffetta_handler::{MetadataPatch, Tombstone};

use super::annotation::{self, STATE_ANNOTATION};
use super::claims::Claim;
use super::error::LbError;
use super::index::ServiceKey;
use super::settle::Settling;
use super::standing::Standing;
use super::{FINALIZER, LbHandler};
use crate::owners::owner_of;

impl LbHandler {
    /// The service lives on without a load balancer.
    pub(super) async fn withdraw(&self, service: &Service, owner: &Owner) -> Result<(), LbError> {
        let annotated = self.annotated(service, &ServiceKey::of(&service.metadata))?;
        let mut settling = self.settling(owner, None, annotated, self.is_doubtful(service)).await?;
        settling.settle().await?;
        self.unpublish(service, &settling.annotated).await?;
        self.claims.forget(&owner.uid);
        self.told.forget(&owner.uid);
        Ok(())
    }

    /// The service goes, and waits for our finalizer.
    pub(super) async fn finalize(&self, service: &Service) -> Result<(), LbError> {
        if !self.is_ours(service) {
            return Ok(());
        }
        let owner = Owner::of(&service.metadata);
        self.release_by_state(service, &owner).await?;
        let patch = MetadataPatch::default().remove_finalizer(FINALIZER);
        self.writer.metadata(service, &patch).await.map_err(LbError::Write)?;
        Ok(())
    }

    /// The service is gone. Whoever saw it go knows what it had; else the marks tell.
    pub(super) async fn bury(&self, tombstone: &Tombstone<Service>) -> Result<(), LbError> {
        let owner = owner_of(tombstone);
        match tombstone {
            Tombstone::Last(service) => {
                if self.is_ours(service) {
                    self.release_by_state(service, &owner).await?;
                }
            }
            Tombstone::Missed(_) => {
                if self.claims.get(&owner.uid) != Some(Claim::Known(Standing::default())) {
                    self.claims.set(&owner.uid, Claim::Asked(None));
                    let mut settling = self.settling(&owner, None, Standing::default(), false).await?;
                    settling.settle().await?;
                }
            }
        }
        self.legacy.remove(&ServiceKey::new(Some(&owner.namespace), &owner.name));
        self.forget(&owner.uid);
        Ok(())
    }

    /// Releases `standing`, which cannot be written down.
    pub(super) async fn release(
        &self,
        owner: &Owner,
        annotated: Standing,
        standing: Standing,
    ) -> Result<(), LbError> {
        Settling::new((&self.drivers, &self.claims), owner, None, annotated, standing).settle().await
    }

    /// Releases what this process knows of, or else what its annotation shows, or else what the marks tell. That nothing
    /// is left is remembered until the service is gone.
    async fn release_by_state(&self, service: &Service, owner: &Owner) -> Result<(), LbError> {
        let text = service.annotations().get(STATE_ANNOTATION);
        // What cannot be read must not keep the service from going.
        let annotated = text.and_then(|text| annotation::read(text).ok()).unwrap_or_default();
        let mut settling = self.settling(owner, None, annotated, self.is_doubtful(service)).await?;
        settling.settle().await?;
        self.claims.set(&owner.uid, Claim::Known(Standing::default()));
        Ok(())
    }
}
