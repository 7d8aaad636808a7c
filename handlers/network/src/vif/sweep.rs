//! Which VIFs exist, as their marks tell.

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Marked, Vif};
use staffetta_handler::{HandlerError, Identity, Sweep};

use super::claims::of_marks;
use super::{VifError, VifHandler};
use crate::owners::identities;

impl VifHandler {
    async fn marks(&self) -> Result<Vec<Marked<Vif>>, VifError> {
        self.drivers.pool.vifs(None).await.map_err(VifError::Marks)
    }
}

impl Sweep for VifHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        if let Some(ledger) = self.drivers.pool.ledger() {
            ledger.read().await.map_err(VifError::Marks)?;
        }
        self.claims.replace(of_marks(self.marks().await?));
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        if let Some(ledger) = self.drivers.pool.ledger() {
            ledger.begin();
            ledger.read().await.map_err(VifError::Marks)?;
        }
        let marks = self.marks().await?;
        self.strays.look(&marks, |uid| self.claims.is_there(uid));
        Ok(identities::<Pod>(marks.into_iter().filter_map(|marked| marked.owner)))
    }
}
