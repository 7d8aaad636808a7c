//! The handle with which a test injects faults into a running server or a proxy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Fault, Front, Requests};

/// The handle by which a test controls all faults of a server or a proxy.
#[derive(Clone)]
pub struct Faults {
    front: Arc<Front>,
}

impl Faults {
    pub(super) fn new(front: Arc<Front>) -> Self {
        Self { front }
    }

    /// Injects `fault` into the next `times` matching requests. If several faults match a request, the oldest applies. A watch
    /// gets its fault when it begins; for a fault in an open watch, inject it and cut the watch.
    pub fn inject(&self, requests: Requests, times: usize, fault: Fault) {
        self.front.plan.add(requests, times, fault);
    }

    /// Removes the faults that have not occurred yet.
    pub fn clear(&self) {
        self.front.plan.clear();
    }

    /// Returns the number of injected faults that have not occurred yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.front.plan.pending()
    }

    /// Waits until `count` requests are held by [`Fault::Hold`].
    pub async fn until_held(&self, count: usize) {
        self.front.hold.until_held(count).await;
    }

    /// Releases all requests that are held by [`Fault::Hold`].
    pub fn let_go(&self) {
        self.front.hold.let_go();
    }

    /// Cuts all open watches in the middle of their responses.
    pub fn cut_watches(&self) {
        self.front.watches.send_modify(|watches| watches.cut += 1);
    }

    /// Silences all watches until [`resume_watches`](Faults::resume_watches): they stay open, but send no data. New watches begin
    /// and are silent too.
    pub fn pause_watches(&self) {
        self.front.watches.send_modify(|watches| watches.paused = true);
    }

    /// Ends the silence of watches. They send the events that happened meanwhile, or 410 if the server has dropped them.
    pub fn resume_watches(&self) {
        self.front.watches.send_modify(|watches| watches.paused = false);
    }

    /// Cuts all connections and closes new ones at once, until [`end_outage`](Faults::end_outage).
    pub fn begin_outage(&self) {
        self.front.connections.refuse(true);
    }

    /// Accepts connections again. No data was lost.
    pub fn end_outage(&self) {
        self.front.connections.refuse(false);
    }

    /// Adds this many seconds to the time in all `Date` headers from now on; a negative number is in the past, 0 ends it.
    pub fn skew_dates(&self, seconds: i64) {
        self.front.skew.store(seconds, Ordering::Relaxed);
    }
}
