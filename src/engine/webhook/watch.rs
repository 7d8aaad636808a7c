//! Watches one object in the cluster.

use std::fmt::Debug;
use std::future::ready;

use futures_util::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use staffetta_handler::causes;
use tracing::warn;

/// Returns the present state of the object `name` and each later one, `None` while the object does not exist. A state that cannot be
/// read is logged, and the watch continues after a delay.
pub(super) fn states<K>(api: Api<K>, name: &str) -> impl Stream<Item = Option<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watch_object(api, name).default_backoff().filter_map(move |state| {
        let kind = K::kind(&());
        let state = state.inspect_err(|error| {
            warn!(%kind, name, error = causes(error), "an object of the webhook cannot be read");
        });
        ready(state.ok())
    })
}
