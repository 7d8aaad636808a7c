//! The VIF pool that keeps no VIFs ready.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{Owned, Owner};
use crate::pod::{Activation, PodVifDriver, VifRequest};
use crate::vif::Vif;
use crate::vif_pool::VifPoolDriver;

/// The pool `noop`, named as in Kuryr, which passes all calls to the VIF driver. It does not change the VIFs that a previously configured
/// pool created, and logs their number when VIFs are listed.
pub struct NoopVifPool {
    vifs: Arc<dyn PodVifDriver>,
}

impl NoopVifPool {
    /// Creates the pool in front of `vifs`.
    pub fn new(vifs: Arc<dyn PodVifDriver>) -> Self {
        Self { vifs }
    }
}

#[async_trait]
impl PodVifDriver for NoopVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.vifs.request_vif(request).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.vifs.release_vif(owner, vif).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        self.vifs.activate_vif(owner, vif).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.vifs.unmarked_vifs().await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let marked = self.vifs.vifs(owner).await?;
        let left = marked.iter().filter(|marked| marked.owner.is_none()).count();
        if left > 0 {
            tracing::warn!(
                count = left,
                "VIFs of a previously configured pool still exist; those that no pod uses can be deleted"
            );
        }
        Ok(marked)
    }
}

impl VifPoolDriver for NoopVifPool {}
