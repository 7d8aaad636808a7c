//! Recovery after a restart, and garbage collection: reads the ownership marks of all resources,
//! and the states of load balancers that the first releases of Kuryr wrote on `Endpoints`.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use staffetta_handler::{GarbageCollector, HandlerError, Identity, each_metadata};

use super::annotation::STATE_ANNOTATION;
use super::endpoints::ServiceKey;
use super::{LbError, LbHandler};
use crate::owners::identities;
use crate::step_error::StepContext;

impl LbHandler {
    /// Reads the states of load balancers that the first releases of Kuryr wrote into annotations of
    /// `Endpoints`, and stores them in `legacy`. Requests only the metadata of these objects.
    async fn read_legacy(&self) -> Result<(), LbError> {
        let endpoints: Api<Endpoints> = Api::all(self.client.clone());
        self.legacy.clear();
        let read = each_metadata(&endpoints, ListParams::default(), |endpoints| {
            if let Some(state) = endpoints.annotations().get(STATE_ANNOTATION) {
                self.legacy.insert(ServiceKey::of(&endpoints.metadata), state.clone());
            }
        });
        read.await.step("list the Endpoints with annotations of older controllers")?;
        Ok(())
    }
}

#[async_trait]
impl GarbageCollector for LbHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.read_legacy().await?;
        self.records.recover(self.drivers.marks(None, None).await?);
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        let marks = self.drivers.marks(None, None).await?;
        let load_balancers = marks.load_balancers.into_iter().filter_map(|marked| marked.owner);
        let public_ips = marks.public_ips.into_iter().filter_map(|marked| marked.owner);
        Ok(identities::<Service>(load_balancers.chain(public_ips)))
    }
}
