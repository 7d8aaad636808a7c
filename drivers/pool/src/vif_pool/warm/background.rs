//! The background task of a warm VIF pool. It ends cool-downs, repeats failed refills, empties the pools of
//! deleted nodes, and lists the existing VIFs again when the pool may differ from them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Inner;

/// The delay before a failed listing of the existing VIFs is repeated.
const LIST_AGAIN: Duration = Duration::from_secs(30);
/// The time between two checks for deleted nodes.
const CHECK: Duration = Duration::from_secs(60);
/// The number of consecutive checks in which a node must be missing before its pooled VIFs are deleted.
const ABSENT_CHECKS: u8 = 2;

impl Inner {
    /// Runs the background task until it is aborted: lists the existing VIFs on request, checks for deleted nodes, and serves waiting
    /// requests and creates and deletes VIFs when that is due.
    pub(super) async fn run(self: Arc<Self>) {
        let (mut list_at, mut check_at): (Option<Instant>, _) = (None, Instant::now() + CHECK);
        // The time of the next listing: after a failed one, or to confirm what an earlier one has found.
        let listing =
            |after_failure: Option<Instant>| after_failure.or_else(|| Some(self.began + self.confirm_at()?));
        loop {
            let now = Instant::now();
            let needs_listing = std::mem::take(&mut self.state.lock().needs_listing);
            if needs_listing || listing(list_at).is_some_and(|at| now >= at) {
                let listed = self.resync().await;
                list_at = listed.is_err().then(|| Instant::now() + LIST_AGAIN);
                if let Err(error) = listed {
                    tracing::warn!(error = %error, "the VIFs of the pool cannot be listed");
                }
            }
            if now >= check_at {
                self.check_nodes();
                check_at = now + CHECK;
            }
            let due = self.reconcile_due().map(|due| self.began + due);
            let until = due.into_iter().chain(listing(list_at)).min().map_or(check_at, |at| at.min(check_at));
            let _ = timeout_at(until, self.wake.notified()).await;
        }
    }

    /// Returns the time from which on a listing may confirm a VIF that an earlier one has found, counted from the creation of this VIF pool;
    /// `None` if all are confirmed.
    pub(super) fn confirm_at(&self) -> Option<Duration> {
        self.state.lock().pools.values().filter_map(|pool| pool.warm.confirm_at()).min()
    }

    /// Does the work whose time has come, for the VIFs of each [`VifPoolKey`](staffetta_driver::VifPoolKey): serves waiting requests, and starts to
    /// create and delete VIFs. Returns the time of the next work, counted from the creation of this VIF pool; `None` if there is none.
    fn reconcile_due(self: &Arc<Self>) -> Option<Duration> {
        let now = self.now();
        let mut state = self.state.lock();
        let due = state.pools.iter().filter(|(_, pool)| pool.due.is_some_and(|due| due <= now));
        let mut due: Vec<_> = due.map(|(key, pool)| (pool.exhausted, Arc::clone(key))).collect();
        // Of those that share an exhausted resource, the one that met that longest ago tries first.
        due.sort();
        for (_, key) in due {
            self.reconcile(&mut state, &key);
        }
        state.pools.values().filter_map(|pool| pool.due).min()
    }

    /// Checks which nodes exist, and starts to delete the pooled VIFs of each node that was missing in [`ABSENT_CHECKS`] consecutive
    /// checks.
    fn check_nodes(self: &Arc<Self>) {
        let Some(hosts) = self.nodes.hosts() else { return };
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        for (key, pool) in &mut state.pools {
            pool.absent = if hosts.contains(&key.host) { 0 } else { pool.absent.saturating_add(1) };
            if pool.absent == ABSENT_CHECKS {
                tracing::info!(host = key.host, "the node is gone; its pooled VIFs are deleted");
                pool.warm.drain();
                gone.push(Arc::clone(key));
            }
        }
        for key in gone {
            self.reconcile(&mut state, &key);
        }
    }
}
