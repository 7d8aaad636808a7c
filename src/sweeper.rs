//! Reads ownership marks: at start, so that nothing is made twice; then periodically, so that nothing is forgotten.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use staffetta_handler::{BackoffPolicy, ErasedSweep, HandlerError, Identity, Kind, bounded, causes};
use tracing::{debug, info, warn};

use crate::metrics::Sweeps;
use crate::pipeline::{Pipeline, Relay};
use crate::watcher::Watcher;

/// The waits after the marks could not be read.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(30), limit: None };

/// Reads the marks of a handler until that succeeds; only then it gets its first event.
pub(crate) async fn recover(relay: &Relay, limit: Duration) {
    let Some(sweep) = &relay.sweep else { return };
    let mut backoff = BACKOFF.start();
    while let Err(error) = bounded(limit, sweep.recover()).await {
        let wait = backoff.next_wait(error.retry_after()).unwrap_or(BACKOFF.max);
        warn!(
            handler = relay.name,
            attempt = backoff.attempts(),
            wait_ms = wait.as_millis(),
            error = causes(&*error),
            "the ownership marks could not be read"
        );
        tokio::time::sleep(wait).await;
    }
    debug!(handler = relay.name, "the ownership marks were read");
    relay.recovered();
}

/// Sweeps once the marks were read, and after each `interval` then, for ever.
pub(crate) async fn sweep(
    relay: &Relay,
    kinds: &[Kind],
    watcher: &Watcher<Pipeline>,
    interval: Duration,
    limit: Duration,
    sweeps: &Sweeps,
) {
    let Some(sweep) = &relay.sweep else { return };
    relay.until_open().await;
    loop {
        match bounded(limit, once(relay, &**sweep, kinds, watcher)).await {
            Ok(orphans) => sweeps.succeeded(orphans),
            Err(error) => {
                sweeps.failed();
                warn!(handler = relay.name, error = causes(&*error), "the sweep could not be made");
            }
        }
        tokio::time::sleep(interval).await;
    }
}

/// Hands the handler a `Deleted` for each owner that does not exist any more, through its own queue. Answers how many.
async fn once(
    relay: &Relay,
    sweep: &dyn ErasedSweep,
    kinds: &[Kind],
    watcher: &Watcher<Pipeline>,
) -> Result<usize, HandlerError> {
    let owners = sweep.owners().await?;
    let mut released = 0;
    for orphaned in orphans(owners, |kind| watcher.uids(kind)) {
        let Some(kind) = kinds.iter().find(|kind| kind.type_id == orphaned.type_id) else { continue };
        let subject = orphaned.subject();
        info!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
            handler = relay.name, "its owner is gone, it will be released");
        relay.chain.push(kind.missed(orphaned));
        released += 1;
    }
    Ok(released)
}

/// The owners that do not exist. Of a kind whose objects are not all known, nobody is an orphan.
pub(crate) fn orphans(
    owners: Vec<Identity>,
    mut uids: impl FnMut(TypeId) -> Option<HashSet<String>>,
) -> Vec<Identity> {
    let mut known = HashMap::new();
    owners
        .into_iter()
        .filter(|owner| {
            let uids = known.entry(owner.type_id).or_insert_with(|| uids(owner.type_id));
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
    use staffetta_handler::{Registration, ResourceEventHandler, Sweep};

    use super::*;
    use crate::observers::LogOnly;
    use crate::pipeline::{self, Policy};

    /// Writes down how its marks are read. The first attempts fail.
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

    impl Sweep for Marks {
        async fn recover(&self) -> Result<(), HandlerError> {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.fetch_sub(1, Ordering::Relaxed);
                return Err(Fault::transient("away").into());
            }
            self.read.lock().unwrap().push("recovered");
            Ok(())
        }

        async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
            self.read.lock().unwrap().push("swept");
            Ok(Vec::new())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_swept_before_the_marks_were_read() {
        const LIMIT: Duration = Duration::from_secs(60);
        let marks = Marks { failures: AtomicUsize::new(3), ..Marks::default() };
        let read = Arc::clone(&marks.read);
        let registration = Registration::new(marks).on::<Pod>().sweep().erase();
        let pipeline = pipeline::build(vec![("marks".into(), registration)], &Policy::default(), &LogOnly);
        let pipeline = Arc::new(pipeline);
        let nobody = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("nobody asks"));
        let watcher = Watcher::new(Client::new(nobody, "default"), Arc::clone(&pipeline));
        let (relay, sweeps) = (&pipeline.relays()[0], Sweeps::default());
        let mut sweeping = std::pin::pin!(sweep(relay, pipeline.kinds(), &watcher, LIMIT, LIMIT, &sweeps));
        assert!(tokio::time::timeout(LIMIT, &mut sweeping).await.is_err());
        assert!(read.lock().unwrap().is_empty());
        recover(relay, LIMIT).await;
        assert!(sweeping.now_or_never().is_none());
        assert_eq!(*read.lock().unwrap(), ["recovered", "swept"]);
    }

    #[test]
    fn an_orphan_is_an_owner_that_does_not_exist_among_those_that_are_known() {
        let owner = |uid: &str| Identity::of::<Pod>(Some("default".into()), uid.into(), uid.into());
        let service = Identity::of::<Service>(Some("default".into()), "web".into(), "s1".into());
        let orphans = orphans(vec![owner("lives"), owner("gone"), service], |kind| {
            (kind == TypeId::of::<Pod>()).then(|| HashSet::from(["lives".to_owned()]))
        });
        assert_eq!(orphans.iter().map(|owner| &*owner.uid).collect::<Vec<_>>(), ["gone"]);
    }
}
