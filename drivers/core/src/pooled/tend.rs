//! What the passing of time brings: cooled VIFs, another attempt, nodes that are gone; and what exists, when it is in doubt.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Inner;
use super::state::State;
use super::work::Work;

/// The time until what exists is read again after that failed.
const AGAIN: Duration = Duration::from_secs(30);
/// The time between two looks at which nodes are gone. What is kept for one that was missing in two is destroyed.
const LOOK: Duration = Duration::from_secs(60);
const LOOKS: u8 = 2;

/// Tends the pool until it is dropped.
pub(super) async fn tend(pool: Weak<Inner>) {
    let (mut resync, mut look) = (None, Instant::now() + LOOK);
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let now = Instant::now();
        if inner.doubt.swap(false, Ordering::AcqRel) || resync.is_some_and(|at| now >= at) {
            resync = if inner.resynced().await { None } else { Some(Instant::now() + AGAIN) };
        }
        if now >= look {
            inner.look();
            look = now + LOOK;
        }
        let due = inner.pass().map(|due| inner.began + due);
        let wake = Arc::clone(&inner.wake);
        drop(inner);
        let until = due.into_iter().chain(resync).min().map_or(look, |at| at.min(look));
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = wake.notified() => {}
        }
    }
}

impl Inner {
    /// Reads what exists. Answers whether that could be done.
    async fn resynced(self: &Arc<Self>) -> bool {
        let read = self.resync().await;
        if let Err(error) = &read {
            tracing::warn!(error = %error, "the pool could not read which VIFs exist");
        }
        read.is_ok()
    }

    /// Lets each shelf do what is due. Answers when the next one has something to do.
    fn pass(self: &Arc<Self>) -> Option<Duration> {
        let (now, mut work) = (self.now(), Vec::new());
        let mut state = self.state();
        let due = state.shelves.iter().filter(|(_, shelf)| shelf.due.is_some_and(|due| due <= now));
        let mut due: Vec<_> = due.map(|(key, shelf)| (shelf.scanted, Arc::clone(key))).collect();
        // Where one at a time may ask for more, it is the turn of those that were refused longest ago.
        due.sort();
        for (_, key) in due {
            self.turn(&mut state, &key, &mut work);
        }
        state.due = state.shelves.values().filter_map(|shelf| shelf.due).min();
        let due = state.due;
        drop(state);
        self.start(work);
        due
    }

    /// Gives up what is kept for nodes that are gone.
    fn look(self: &Arc<Self>) {
        let Some(hosts) = self.nodes.hosts() else { return };
        let mut work = Vec::new();
        let mut state = self.state();
        self.give_up(&mut state, &hosts, &mut work);
        drop(state);
        self.start(work);
    }

    fn give_up(self: &Arc<Self>, state: &mut State, hosts: &HashSet<String>, work: &mut Vec<Work>) {
        let mut gone = Vec::new();
        for (key, shelf) in &mut state.shelves {
            shelf.absent = if hosts.contains(&key.host) { 0 } else { shelf.absent.saturating_add(1) };
            if shelf.absent == LOOKS {
                tracing::info!(host = key.host, "the node is gone; what the pool keeps for it is destroyed");
                shelf.pool.drain();
                gone.push(Arc::clone(key));
            }
        }
        for key in gone {
            self.turn(state, &key, work);
        }
    }
}
