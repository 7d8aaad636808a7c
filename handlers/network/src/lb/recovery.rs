//! Recovery after a restart, and garbage collection: reads the ownership marks of all resources,
//! and the states of load balancers that the first releases of Kuryr wrote on `Endpoints`.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use staffetta_handler::{GarbageCollector, HandlerError, Identity};
use tokio::time::timeout;

use super::annotation::STATE_ANNOTATION;
use super::endpoints::ServiceKey;
use super::{LbError, LbHandler};
use crate::owners::identities;
use crate::step_error::StepContext;

/// The number of objects in each page of the list of `Endpoints`.
const PAGE: u32 = 500;
/// The time limit of one page. The recovery as a whole has none, and is not repeated before it fails.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

impl LbHandler {
    /// Reads the states of load balancers that the first releases of Kuryr wrote into annotations of
    /// `Endpoints`, and stores them in `legacy`. Requests only the metadata of these objects.
    async fn read_legacy(&self) -> Result<(), LbError> {
        let endpoints: Api<Endpoints> = Api::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        self.legacy.clear();
        loop {
            let list = timeout(PAGE_TIMEOUT, endpoints.list_metadata(&page)).await;
            let list = list.unwrap_or_else(|_| {
                let text = format!("no answer within {} s", PAGE_TIMEOUT.as_secs());
                Err(kube::Error::Service(text.into()))
            });
            let list = list.step("list the Endpoints with annotations of older controllers")?;
            for endpoints in &list.items {
                if let Some(state) = endpoints.annotations().get(STATE_ANNOTATION) {
                    self.legacy.insert(ServiceKey::of(&endpoints.metadata), state.clone());
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(()),
            }
        }
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
