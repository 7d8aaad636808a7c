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

/// Sweeps now and after each `interval`, for ever.
pub(crate) async fn sweep(
    relay: &Relay,
    kinds: &[Kind],
    watcher: &Watcher<Pipeline>,
    interval: Duration,
    limit: Duration,
    sweeps: &Sweeps,
) {
    let Some(sweep) = &relay.sweep else { return };
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
fn orphans(owners: Vec<Identity>, mut uids: impl FnMut(TypeId) -> Option<HashSet<String>>) -> Vec<Identity> {
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
    use k8s_openapi::api::core::v1::{Pod, Service};

    use super::*;

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
