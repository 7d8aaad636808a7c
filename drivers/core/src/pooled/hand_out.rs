//! A VIF on its way to the pod that asked for it.

use std::sync::Arc;

use super::Inner;
use super::ports::Hold;
use crate::id::Uid;
use crate::stock::StockKey;
use crate::vif::Vif;

/// A VIF on its way to the pod that asked for it. When nobody takes it, because who asked has gone, it is back on its shelf
/// at once.
pub(super) struct HandOut {
    pub(super) inner: Arc<Inner>,
    pub(super) key: Arc<StockKey>,
    pub(super) hold: Hold,
    pub(super) uid: Uid,
    pub(super) vif: Option<Vif>,
    /// Whether its security groups must be changed first.
    pub(super) adapt: bool,
}

impl HandOut {
    /// The pod has it.
    pub(super) fn keep(mut self) -> Option<Vif> {
        self.vif.take()
    }

    /// It does not exist any more.
    pub(super) fn lost(mut self) {
        if let Some(vif) = self.vif.take() {
            let mut state = self.inner.state();
            state.let_go(&vif.id, &self.uid);
            state.lose(&self.key, &vif.id);
        }
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        let Some(vif) = self.vif.take() else { return };
        let now = self.inner.now();
        let mut state = self.inner.state();
        state.let_go(&vif.id, &self.uid);
        if let Some(shelf) = state.shelves.get_mut(&self.key) {
            if self.adapt {
                // The call may have taken effect, or will: whatever was read meanwhile, nobody knows how it is.
                shelf.pool.adapted(&vif.id, None);
            }
            shelf.pool.put_back(&self.hold, &vif.id, now);
            shelf.vifs.insert(vif.id.clone(), vif);
        }
        drop(state);
        self.inner.wake.notify_one();
    }
}

/// A request that waits. When it is dropped, nobody waits any more.
pub(super) struct Waiting {
    pub(super) inner: Arc<Inner>,
    pub(super) key: Arc<StockKey>,
    pub(super) hold: Hold,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.waiters.remove(&self.hold);
        if let Some(shelf) = state.shelves.get_mut(&self.key) {
            shelf.pool.leave(&self.hold);
        }
    }
}
