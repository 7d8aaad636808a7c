//! Reads ownership marks: at start, so that nothing is created twice, and periodically, so that nothing is leaked.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use staffetta_handler::{AnyEvent, GarbageCollector, HandlerError, Identity, bounded, causes};
use tracing::{debug, info, warn};

use super::{HandlerChain, Pipeline};
use crate::metrics::Metrics;
use crate::retry::until_success;
use crate::watcher::Watcher;

/// Reads the ownership marks of a handler until that succeeds. The handler gets its first event after that.
pub(crate) async fn recover(handler: &HandlerChain, timeout: Duration) {
    let Some(collector) = &handler.collector else { return };
    until_success(
        timeout,
        || collector.recover(),
        |attempt, wait_ms, error| {
            warn!(handler = handler.name, attempt, wait_ms, error, "the ownership marks cannot be read");
        },
    )
    .await;
    debug!(handler = handler.name, "the ownership marks are read");
    handler.marks_read();
}

/// Collects garbage once the handler gets events, and then after each `interval`, for ever.
pub(crate) async fn collect_periodically(
    handler: &HandlerChain,
    watcher: &Watcher<Pipeline>,
    interval: Duration,
    timeout: Duration,
    metrics: &Metrics,
) {
    let Some(collector) = &handler.collector else { return };
    handler.until_open().await;
    loop {
        match bounded(timeout, collect(handler, &**collector, watcher)).await {
            Ok(orphans) => metrics.count_collection(&handler.name, Some(orphans)),
            Err(error) => {
                metrics.count_collection(&handler.name, None);
                warn!(handler = handler.name, error = causes(&*error), "the garbage collection failed");
            }
        }
        tokio::time::sleep(interval).await;
    }
}

/// Queues a `Deleted` for each owner that does not exist. Returns their number.
async fn collect(
    handler: &HandlerChain,
    collector: &dyn GarbageCollector,
    watcher: &Watcher<Pipeline>,
) -> Result<usize, HandlerError> {
    let owners = collector.owners().await?;
    let mut orphaned = 0;
    for owner in orphans(owners, |kind| watcher.uids(kind)) {
        let object_ref = owner.object_ref();
        info!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = handler.name, "the owner of external resources does not exist; they are released");
        handler.chain.push(AnyEvent::Missed(Arc::new(owner)));
        orphaned += 1;
    }
    Ok(orphaned)
}

/// The owners that do not exist. An owner counts as existing while the objects of its kind are not completely listed.
pub(crate) fn orphans(
    owners: Vec<Identity>,
    mut uids: impl FnMut(TypeId) -> Option<HashSet<String>>,
) -> Vec<Identity> {
    let mut existing = HashMap::new();
    owners
        .into_iter()
        .filter(|owner| {
            let uids = existing.entry(owner.type_id).or_insert_with(|| uids(owner.type_id));
            uids.as_ref().is_some_and(|uids| !uids.contains(&owner.uid))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{Pod, Service};
    use kube::Client;
    use kube::client::Body;
    use staffetta_handler::testing::Fault;
    use staffetta_handler::{GarbageCollector, Registration, ResourceEventHandler};

    use super::*;
    use crate::config::RelayOptions;
    use crate::observers::LogOnly;
    use crate::pipeline;
    use crate::term::Term;

    /// Records the calls of its garbage collector. The first `failures` of them fail.
    #[derive(Default)]
    struct Marks {
        failures: AtomicUsize,
        read: Arc<Mutex<Vec<&'static str>>>,
    }

    impl ResourceEventHandler<Pod> for Marks {
        type Error = Fault;

        async fn on_present(&self, _: &Arc<Pod>) -> Result<(), Fault> {
            Ok(())
        }
    }

    #[async_trait::async_trait]
    impl GarbageCollector for Marks {
        async fn recover(&self) -> Result<(), HandlerError> {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.fetch_sub(1, Ordering::Relaxed);
                return Err(Fault::transient("away").into());
            }
            self.read.lock().unwrap().push("recovered");
            Ok(())
        }

        async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
            self.read.lock().unwrap().push("collected");
            Ok(Vec::new())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_garbage_is_collected_before_the_marks_are_read() {
        const LIMIT: Duration = Duration::from_secs(60);
        let marks = Marks { failures: AtomicUsize::new(3), ..Marks::default() };
        let read = Arc::clone(&marks.read);
        let registration = Registration::new(marks).on::<Pod>().garbage_collector().erase();
        let pipeline = pipeline::build(
            vec![("marks".into(), registration)],
            &RelayOptions::default(),
            &Term::unlimited(),
            &LogOnly,
        );
        let pipeline = Arc::new(pipeline);
        let server =
            tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("there is no server"));
        let watcher = Watcher::new(Client::new(server, "default"), Arc::clone(&pipeline));
        let (handler, metrics) = (&pipeline.handlers()[0], Metrics::new("server", &[]));
        let collecting = collect_periodically(handler, &watcher, LIMIT, LIMIT, &metrics);
        let mut collecting = std::pin::pin!(collecting);
        assert!(tokio::time::timeout(LIMIT, &mut collecting).await.is_err());
        assert!(read.lock().unwrap().is_empty());
        recover(handler, LIMIT).await;
        assert!(collecting.now_or_never().is_none());
        assert_eq!(*read.lock().unwrap(), ["recovered", "collected"]);
    }

    #[test]
    fn an_owner_is_an_orphan_if_its_kind_is_listed_and_it_does_not_exist() {
        let owner = |uid: &str| Identity::of::<Pod>(Some("default".into()), uid.into(), uid.into());
        let service = Identity::of::<Service>(Some("default".into()), "web".into(), "s1".into());
        let orphans = orphans(vec![owner("exists"), owner("gone"), service], |kind| {
            (kind == TypeId::of::<Pod>()).then(|| HashSet::from(["exists".to_owned()]))
        });
        assert_eq!(orphans.iter().map(|owner| &*owner.uid).collect::<Vec<_>>(), ["gone"]);
    }
}
