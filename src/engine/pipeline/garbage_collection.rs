//! Reads the ownership marks (owners in the tags of external resources): at start, so that nothing is created twice, and periodically,
//! so that resources without an existing owner are released.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use staffetta_driver::count_listed;
use staffetta_handler::{AnyEvent, Failure, GarbageCollector, HandlerError, Identity, bounded, causes};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{HandlerChain, MARKS_UNREAD, Pipeline};
use crate::base::config::RelayOptions;
use crate::base::metrics::Metrics;
use crate::base::retry::until_success;
use crate::engine::watcher::Watcher;

/// The time between two updates of the progress of reading the ownership marks.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The number of missing owners up to which their resources are always released, even if they are more than half of all owners.
const ALWAYS_RELEASED: usize = 20;

/// Reads the ownership marks of a handler, and repeats that until it succeeds. The handler gets its first event after that. There is
/// no time limit except those of the driver's calls, because a list may be of any length. `progress` gets a description of the
/// progress every five seconds.
pub(crate) async fn recover(handler: &HandlerChain, progress: impl Fn(String)) {
    let Some(collector) = &handler.registration.collector else { return };
    let (listed, started) = (Arc::<AtomicUsize>::default(), Instant::now());
    let recover = until_success(
        Duration::MAX,
        || count_listed(Arc::clone(&listed), collector.recover()),
        |attempt, wait_ms, error| {
            warn!(handler = handler.name, attempt, wait_ms, error, "the ownership marks cannot be read");
        },
    );
    let show = async {
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let (listed, seconds) = (listed.load(Relaxed), started.elapsed().as_secs());
            progress(format!("{MARKS_UNREAD}: {listed} resources were listed in {seconds} s"));
        }
    };
    tokio::select! {
        () = recover => {}
        () = show => {}
    }
    debug!(handler = handler.name, "the ownership marks are read");
    handler.met(None);
}

/// Queues deletions for the owners of external resources that no longer exist: as soon as the handler gets events, and then after each
/// `relay.sweep_interval`, for ever. Returns at once if the handler has no garbage collector.
pub(crate) async fn collect_periodically(
    handler: &HandlerChain,
    watcher: &Watcher<Pipeline>,
    relay: &RelayOptions,
    metrics: &Metrics,
) {
    let Some(collector) = &handler.registration.collector else { return };
    handler.until_open().await;
    loop {
        let collection = collect(handler, &**collector, watcher, relay.allow_mass_release);
        match bounded(Duration::MAX, collection).await {
            Ok(orphans) => metrics.count_collection(&handler.name, Some(orphans)),
            Err(error) => {
                metrics.count_collection(&handler.name, None);
                warn!(handler = handler.name, error = causes(&*error), "the garbage collection failed");
            }
        }
        tokio::time::sleep(relay.sweep_interval.into()).await;
    }
}

/// The error of a garbage collection that would release the resources of most owners (see [`orphans`]), which
/// `relay.allow_mass_release` forbids by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{missing} of {owners} owners of external resources do not exist, so nothing is released: is this the right cluster, with all its \
     data? `relay.allow_mass_release = true` lets them be released"
)]
pub(crate) struct MassRelease {
    missing: usize,
    owners: usize,
}

impl Failure for MassRelease {
    fn transient(&self) -> bool {
        false
    }
}

/// Queues a `Deleted` event for each owner of external resources that does not exist any more. Returns the number of these owners. Fails if
/// the owners cannot be read, or with [`MassRelease`].
async fn collect(
    handler: &HandlerChain,
    collector: &dyn GarbageCollector,
    watcher: &Watcher<Pipeline>,
    allow_mass_release: bool,
) -> Result<usize, HandlerError> {
    let owners = collector.owners().await?;
    let mut orphaned = 0;
    for owner in orphans(owners, |kind| watcher.uids(kind), allow_mass_release)? {
        let object_ref = owner.object_ref();
        info!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = handler.name, "the owner of external resources does not exist; they are released");
        handler.chain.push(handler.registration.resolve(&AnyEvent::Missed(Arc::new(owner))));
        orphaned += 1;
    }
    Ok(orphaned)
}

/// Returns those of `owners` that do not exist in the cluster. `uids` returns the UIDs of all objects of a kind; while it returns `None`
/// because they are not completely listed, owners of that kind count as existing.
///
/// # Errors
///
/// More than half of the owners and more than [`ALWAYS_RELEASED`] do not exist, and `allow_mass_release` is `false`.
pub(crate) fn orphans(
    owners: Vec<Identity>,
    mut uids: impl FnMut(TypeId) -> Option<HashSet<String>>,
    allow_mass_release: bool,
) -> Result<Vec<Identity>, MassRelease> {
    let (mut existing, total) = (HashMap::new(), owners.len());
    let orphans: Vec<_> = owners
        .into_iter()
        .filter(|owner| {
            let uids = existing.entry(owner.type_id).or_insert_with(|| uids(owner.type_id));
            uids.as_ref().is_some_and(|uids| !uids.contains(&owner.uid))
        })
        .collect();
    let missing = orphans.len();
    if missing > ALWAYS_RELEASED && missing * 2 > total && !allow_mass_release {
        return Err(MassRelease { missing, owners: total });
    }
    Ok(orphans)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{Pod, Service};
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use staffetta_handler::testing::Fault;
    use staffetta_handler::{Action, GarbageCollector, Registration, ResourceEventHandler};

    use super::*;
    use crate::engine::pipeline::{self, HandlerReports};
    use crate::engine::term::Term;

    /// A handler that records the calls of its garbage collector. The first `failures` calls fail.
    #[derive(Default)]
    struct Marks {
        failures: AtomicUsize,
        read: Arc<Mutex<Vec<&'static str>>>,
    }

    impl ResourceEventHandler<Pod> for Marks {
        type Error = Fault;

        async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, Fault> {
            Ok(Action::done())
        }
    }

    #[async_trait::async_trait]
    impl GarbageCollector for Marks {
        async fn recover(&self) -> Result<(), HandlerError> {
            if self.failures.load(Relaxed) > 0 {
                self.failures.fetch_sub(1, Relaxed);
                return Err(Fault::transient("away").into());
            }
            self.read.lock().push("recovered");
            Ok(())
        }

        async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
            self.read.lock().push("collected");
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
            &HandlerReports::default(),
        );
        let pipeline = Arc::new(pipeline);
        let server =
            tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("there is no server"));
        let watcher = Watcher::new(Client::new(server, "default"), Arc::clone(&pipeline));
        let (handler, metrics) = (&pipeline.handlers()[0], Metrics::new("server", &[]));
        let relay = RelayOptions::default();
        let collecting = collect_periodically(handler, &watcher, &relay, &metrics);
        let mut collecting = std::pin::pin!(collecting);
        assert!(tokio::time::timeout(LIMIT, &mut collecting).await.is_err());
        assert!(read.lock().is_empty());
        recover(handler, drop).await;
        assert!(collecting.now_or_never().is_none());
        assert_eq!(*read.lock(), ["recovered", "collected"]);
    }

    /// A handler whose driver needs half a minute for each page of a list.
    struct SlowMarks;

    impl SlowMarks {
        const PAGES: usize = 50;

        async fn list(&self) -> usize {
            for _ in 0..Self::PAGES {
                tokio::time::sleep(Duration::from_secs(30)).await;
                staffetta_driver::page_listed(1000);
            }
            Self::PAGES * 1000
        }
    }

    impl ResourceEventHandler<Pod> for SlowMarks {
        type Error = Fault;
    }

    #[async_trait::async_trait]
    impl GarbageCollector for SlowMarks {
        async fn recover(&self) -> Result<(), HandlerError> {
            self.list().await;
            Ok(())
        }

        async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
            let owner = |number: usize| Identity::of::<Pod>(None, number.to_string(), number.to_string());
            Ok((0..self.list().await).map(owner).collect())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_marks_of_50000_ports_are_read_once_however_slow_the_list_is_and_the_progress_is_shown() {
        let registration = Registration::new(SlowMarks).on::<Pod>().garbage_collector().erase();
        let relay = RelayOptions::default();
        assert!(Duration::from(relay.handler_timeout) < Duration::from_secs(30) * 50);
        let handlers = vec![("slow".into(), registration)];
        let pipeline =
            Arc::new(pipeline::build(handlers, &relay, &Term::unlimited(), &HandlerReports::default()));
        let (handler, started) = (&pipeline.handlers()[0], Instant::now());
        let shown = Mutex::new(Vec::new());
        recover(handler, |progress| shown.lock().push(progress)).await;
        assert_eq!(started.elapsed(), Duration::from_secs(1500), "once");
        assert!(handler.is_open());
        let shown = shown.into_inner();
        let text = format!("{MARKS_UNREAD}: 1000 resources were listed in 35 s");
        assert!(shown.contains(&text), "{:?}", &shown[..9]);

        let server =
            tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("there is no server"));
        let watcher = Watcher::new(Client::new(server, "default"), Arc::clone(&pipeline));
        let metrics = Metrics::new("server", &["slow".into()]);
        let collecting = collect_periodically(handler, &watcher, &relay, &metrics);
        let limit = Duration::from_secs(1501);
        tokio::time::timeout(limit, collecting).await.expect_err("it never ends");
        let page = metrics.page(|_| {}).unwrap();
        let counted = "staffetta_garbage_collections_total{handler=\"slow\",outcome=\"success\"} 1";
        assert!(page.contains(counted), "{page}");
    }

    #[test]
    fn an_owner_is_an_orphan_if_its_kind_is_listed_and_it_does_not_exist() {
        let owner = |uid: &str| Identity::of::<Pod>(Some("default".into()), uid.into(), uid.into());
        let service = Identity::of::<Service>(Some("default".into()), "web".into(), "s1".into());
        let existing = |kind| (kind == TypeId::of::<Pod>()).then(|| HashSet::from(["exists".to_owned()]));
        let orphans = orphans(vec![owner("exists"), owner("gone"), service], existing, false).unwrap();
        assert_eq!(orphans.iter().map(|owner| &*owner.uid).collect::<Vec<_>>(), ["gone"]);
    }

    #[test]
    fn more_than_half_of_all_owners_and_more_than_twenty_are_not_orphans_unless_that_is_allowed() {
        let owners = |count: usize| -> Vec<Identity> {
            (0..count)
                .map(|number| Identity::of::<Pod>(None, number.to_string(), number.to_string()))
                .collect()
        };
        // The first `gone` of the owners do not exist.
        let orphans = |gone: usize, all: usize, allowed: bool| {
            let existing: HashSet<_> = (gone..all).map(|number| number.to_string()).collect();
            orphans(owners(all), |_| Some(existing.clone()), allowed).map(|orphans| orphans.len())
        };
        assert_eq!(orphans(20, 20, false), Ok(20));
        assert_eq!(orphans(21, 42, false), Ok(21));
        let refused = MassRelease { missing: 21, owners: 41 };
        assert_eq!(orphans(21, 41, false), Err(refused));
        assert_eq!(orphans(21, 41, true), Ok(21));
    }
}
