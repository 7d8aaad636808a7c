//! What goes wrong on purpose: the handle by which a test breaks a running server.

use std::sync::Arc;

use crate::plan::{Fault, Requests};
use crate::shared::Shared;

/// The handle of a test to all faults of a server.
pub struct Faults {
    shared: Arc<Shared>,
}

impl Faults {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The next `times` requests that match meet this fault.
    pub fn inject(&self, requests: Requests, times: usize, fault: Fault) {
        self.shared.plan.add(requests, times, fault);
    }

    /// Forgets the faults that have not happened yet.
    pub fn clear(&self) {
        self.shared.plan.clear();
    }

    /// How many injected faults have not happened yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.plan.pending()
    }

    /// Cuts all open watches in the middle of their answers.
    pub fn cut_watches(&self) {
        self.shared.watches.send_modify(|watches| watches.cut += 1);
    }

    /// From now on watches deliver nothing, until [`resume_watches`](Faults::resume_watches).
    pub fn pause_watches(&self) {
        self.shared.watches.send_modify(|watches| watches.paused = true);
    }

    /// Watches deliver again: what happened meanwhile, or 410 where the log was trimmed.
    pub fn resume_watches(&self) {
        self.shared.watches.send_modify(|watches| watches.paused = false);
    }

    /// Forgets all events: who asks for what happened before now gets 410.
    pub fn trim_event_log(&self) {
        self.shared.with(|cluster| cluster.store.trim());
    }

    /// Cuts all connections and closes new ones at once, until [`end_outage`](Faults::end_outage).
    pub fn begin_outage(&self) {
        self.shared.connections.refuse(true);
    }

    /// Serves again. Nothing was lost.
    pub fn end_outage(&self) {
        self.shared.connections.refuse(false);
    }
}
