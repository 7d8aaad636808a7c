//! The handle with which a test injects faults into a running server or a proxy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Fault, Front, Requests};

/// The handle of a test to all faults of a server or a proxy.
#[derive(Clone)]
pub struct Faults {
    front: Arc<Front>,
}

impl Faults {
    pub(super) fn new(front: Arc<Front>) -> Self {
        Self { front }
    }

    /// The next `times` requests that match meet this fault. Of several that match, the oldest comes first. A watch meets
    /// its fault when it begins; to have one in a watch that is open, inject it and cut that.
    pub fn inject(&self, requests: Requests, times: usize, fault: Fault) {
        self.front.plan.add(requests, times, fault);
    }

    /// Forgets the faults that have not happened yet.
    pub fn clear(&self) {
        self.front.plan.clear();
    }

    /// The number of injected faults that have not occurred yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.front.plan.pending()
    }

    /// Ends when so many requests are held back by [`Fault::Hold`].
    pub async fn until_held(&self, count: usize) {
        self.front.hold.until_held(count).await;
    }

    /// Lets all requests go on that are held back.
    pub fn let_go(&self) {
        self.front.hold.let_go();
    }

    /// Cuts all open watches in the middle of their answers.
    pub fn cut_watches(&self) {
        self.front.watches.send_modify(|watches| watches.cut += 1);
    }

    /// From now on watches stay silent, until [`resume_watches`](Faults::resume_watches): they are open, do not end, and
    /// no byte comes. New ones begin, and are as silent.
    pub fn pause_watches(&self) {
        self.front.watches.send_modify(|watches| watches.paused = true);
    }

    /// Watches deliver again: what happened meanwhile, or 410 where the server has forgotten it.
    pub fn resume_watches(&self) {
        self.front.watches.send_modify(|watches| watches.paused = false);
    }

    /// Cuts all connections and closes new ones at once, until [`end_outage`](Faults::end_outage).
    pub fn begin_outage(&self) {
        self.front.connections.refuse(true);
    }

    /// Serves again. Nothing was lost.
    pub fn end_outage(&self) {
        self.front.connections.refuse(false);
    }

    /// From now on the Date headers are wrong by this many seconds, 0 for none; negative ones lie in the past.
    pub fn skew_dates(&self, seconds: i64) {
        self.front.skew.store(seconds, Ordering::Relaxed);
    }
}
