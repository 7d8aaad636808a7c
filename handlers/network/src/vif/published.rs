//! Reads the published VIFs of all pods from the API server, for a VIF pool.

use std::collections::HashSet;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use staffetta_driver::{DriverError, PublishedVifs, Reason, VifId};
use staffetta_handler::each_living_pod;

use crate::os_vif::{KURYR_VIF, PodState};

/// Reads the VIFs in the annotations of the pods at an API server.
pub struct VifAnnotations(Api<Pod>);

impl VifAnnotations {
    /// Creates a reader that reads the pods of all namespaces through `client`.
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }
}

#[async_trait]
impl PublishedVifs for VifAnnotations {
    /// Ignores annotations that cannot be read: what the controller writes can be.
    async fn published_vifs(&self) -> Result<HashSet<VifId>, DriverError> {
        let mut published = HashSet::new();
        let read = each_living_pod(&self.0, |pod| {
            let state = pod.annotations().get(KURYR_VIF).map(|text| PodState::read(text));
            published.extend(state.iter().flatten().flat_map(PodState::vifs).map(|vif| vif.id.clone()));
        });
        let failed =
            |error| DriverError::new(Reason::Unavailable, "list the annotations of pods").because(error);
        read.await.map_err(failed)?;
        Ok(published)
    }
}
