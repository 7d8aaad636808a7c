//! Watches the objects of the demo, reports their changes, and triggers the checks.

use std::fmt::Debug;
use std::time::Instant;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::journal::{Journal, Reported};
use crate::news::News;

/// The watches. They end when this is dropped.
pub(crate) struct Followed {
    _tasks: JoinSet<()>,
    /// Owned as changed with every event.
    pub(crate) changes: watch::Receiver<()>,
}

/// Follows the objects that the judge looks at; tells of those that people look at.
pub(crate) fn follow(client: &Client, began: Instant, news: &mpsc::UnboundedSender<News>) -> Followed {
    let (changed, changes) = watch::channel(());
    let mut tasks = JoinSet::new();
    tasks.spawn(each(client.clone(), changed.clone(), telling::<Pod>(began, news)));
    tasks.spawn(each(client.clone(), changed.clone(), telling::<Service>(began, news)));
    tasks.spawn(each(client.clone(), changed.clone(), |_: &Event<Deployment>| {}));
    tasks.spawn(each(client.clone(), changed, |_: &Event<EndpointSlice>| {}));
    Followed { _tasks: tasks, changes }
}

fn telling<K: Reported>(
    began: Instant,
    news: &mpsc::UnboundedSender<News>,
) -> impl FnMut(&Event<K>) + use<K> {
    let mut journal = Journal::new(began);
    let news = news.clone();
    move |event| {
        for happening in journal.note(event, Instant::now()) {
            // Nobody listens any more when the demo ends.
            let _ = news.send(News::Object(happening));
        }
    }
}

async fn each<K>(client: Client, changed: watch::Sender<()>, mut note: impl FnMut(&Event<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::all(client), watcher::Config::default()).default_backoff();
    // What fails is watched anew, with a back-off.
    let mut events = events.filter_map(async |event| event.ok()).boxed();
    while let Some(event) = events.next().await {
        note(&event);
        changed.send_replace(());
    }
}
