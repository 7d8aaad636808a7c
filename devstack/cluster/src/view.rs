//! A cache of the objects of one kind, updated by a watch.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::select_all;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

/// All objects of one kind. It lags behind the API, so that what is decided by it must be harmless when it is late.
#[derive(Clone)]
pub(crate) struct View<K: Lookup + Clone + 'static>
where
    K::DynamicType: Hash + Eq + Clone,
{
    store: Store<K>,
    /// `true` once all objects are known; marked as changed with every event.
    listed: watch::Receiver<bool>,
}

impl<K> View<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Watches the kind for as long as `tasks` live.
    pub(crate) fn start(api: Api<K>, tasks: &mut JoinSet<()>) -> Self {
        let (store, writer) = reflector::store();
        let (sender, listed) = watch::channel(false);
        tasks.spawn(async move {
            let mut events =
                watcher(api, watcher::Config::default()).default_backoff().reflect(writer).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        sender.send_modify(|listed| *listed |= matches!(event, watcher::Event::InitDone));
                    }
                    Err(error) => warn!(kind = %K::kind(&()), %error, "the watch failed and begins anew"),
                }
            }
        });
        Self { store, listed }
    }

    /// All objects, by namespace and name.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        let mut all = self.store.state();
        all.sort_by_cached_key(|object| (object.meta().namespace.clone(), object.name_any()));
        all
    }

    pub(crate) fn changes(&self) -> watch::Receiver<bool> {
        self.listed.clone()
    }
}

/// The changes of several views.
pub(crate) struct Changes(Vec<watch::Receiver<bool>>);

impl Changes {
    pub(crate) fn of(views: impl IntoIterator<Item = watch::Receiver<bool>>) -> Self {
        Self(views.into_iter().collect())
    }

    /// Ends when every view is complete. False when one never will be, because its watch has ended.
    pub(crate) async fn listed(&mut self) -> bool {
        for view in &mut self.0 {
            if view.wait_for(|listed| *listed).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Ends when something changed since the last time. False when a watch has ended.
    pub(crate) async fn next(&mut self) -> bool {
        let changes = self.0.iter_mut().map(|view| Box::pin(view.changed()));
        select_all(changes).await.0.is_ok()
    }
}
