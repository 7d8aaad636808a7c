//! The pool that keeps nothing.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::DriverError;
use crate::owner::{Marked, Owner};
use crate::pod_vif::{Activation, PodVifDriver, VifRequest};
use crate::vif::Vif;
use crate::vif_pool::VifPoolDriver;

/// The pool `noop`: passes everything on to the VIF driver. What an earlier pool kept it leaves alone, and tells of it.
pub struct NoopPool {
    vifs: Arc<dyn PodVifDriver>,
}

impl NoopPool {
    /// In front of `vifs`.
    pub fn new(vifs: Arc<dyn PodVifDriver>) -> Self {
        Self { vifs }
    }
}

#[async_trait]
impl VifPoolDriver for NoopPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.vifs.request_vif(request).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.vifs.release_vif(owner, vif).await
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.vifs.activate_vif(vif).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        let marked = self.vifs.vifs(owner).await?;
        let left = marked.iter().filter(|marked| marked.owner.is_none()).count();
        if left > 0 {
            tracing::warn!(
                count = left,
                "VIFs of an earlier pool are left, which no pool keeps any more; those that no pod \
                uses can be removed"
            );
        }
        Ok(marked)
    }
}
