//! Reads the metadata of all objects of one kind from the API server, page by page.

use std::fmt::Debug;
use std::time::Duration;

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
