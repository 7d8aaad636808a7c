//! Which VIFs exist, as their marks tell.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Marked, Vif};
use staffetta_handler::{HandlerError, Identity, Sweep};

use super::{VifError, VifHandler};

impl VifHandler {
    async fn marks(&self) -> Result<Vec<Marked<Vif>>, VifError> {
        self.drivers.pool.vifs(None).await.map_err(VifError::Marks)
    }
}

impl Sweep for VifHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.claims.recover(self.marks().await?);
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        let owners = self.marks().await?.into_iter().filter_map(|marked| marked.owner);
        let by_uid: HashMap<_, _> = owners.map(|owner| (owner.uid.clone(), owner)).collect();
        let identity = |owner: staffetta_driver::Owner| {
            Identity::of::<Pod>(Some(owner.namespace), owner.name, owner.uid.to_string())
        };
        Ok(by_uid.into_values().map(identity).collect())
    }
}
