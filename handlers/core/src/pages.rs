//! Reads the metadata of all objects of one kind, or of all living pods, from the API server, page by page.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// The number of objects in each page.
const PAGE: u32 = 500;
/// The time limit of one page. All pages together have none.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `read` with the metadata of each object that `selection` selects. Unlike a watch, which lags, the answer shows all writes that took
/// effect before the call.
pub async fn each_metadata<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    selection: ListParams,
    mut read: impl FnMut(&PartialObjectMeta<K>),
) -> kube::Result<()> {
    let mut page = selection.limit(PAGE);
    loop {
        let list = timeout(PAGE_TIMEOUT, api.list_metadata(&page)).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", PAGE_TIMEOUT.as_secs());
            Err(kube::Error::Service(text.into()))
        })?;
        list.items.iter().for_each(&mut read);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Calls `read` with the metadata of each pod that may still have a network: without those that are finished, or are being deleted with no grace
/// period left. The answer is as new as that of [`each_metadata`].
pub async fn each_living_pod(
    pods: &Api<Pod>,
    mut read: impl FnMut(&PartialObjectMeta<Pod>),
) -> kube::Result<()> {
    let unfinished = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    each_metadata(pods, unfinished, |pod| {
        let metadata = &pod.metadata;
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        if metadata.deletion_timestamp.is_none() || grace > 0 {
            read(pod);
        }
    })
    .await
}
