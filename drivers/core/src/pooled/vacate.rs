//! Gives up what is kept in a network that is about to be deleted.

use std::sync::Arc;

use super::Inner;
use super::state::Phase;
use super::work::Work;
use crate::error::{DriverError, Reason};
use crate::id::{NetworkId, VifId};

const STEP: &str = "empty the pool of a network";

impl Inner {
    pub(super) async fn vacate(self: &Arc<Self>, network: &NetworkId) -> Result<(), DriverError> {
        self.finish(self.give_up_network(network)?).await;
        if self.state().shelves.keys().any(|key| key.network == *network) {
            let detail =
                format!("VIFs of the network {network} are in use, or are just being made or destroyed");
            return Err(DriverError::new(Reason::Conflict, STEP).detail(detail));
        }
        Ok(())
    }

    /// Nothing is kept there any more, and what is free goes at once: it need not cool down for a pod that never comes.
    fn give_up_network(self: &Arc<Self>, network: &NetworkId) -> Result<Vec<Work>, DriverError> {
        let mut work = Vec::new();
        let mut state = self.state();
        if let Phase::Read(_) = state.phase {
            let detail = "which VIFs exist, and which pods use them, is not known yet";
            return Err(DriverError::new(Reason::Unavailable, STEP).detail(detail));
        }
        let keys: Vec<_> = state.shelves.keys().filter(|key| key.network == *network).cloned().collect();
        for key in &keys {
            if let Some(shelf) = state.shelves.get_mut(key) {
                shelf.pool.drain();
                let free: Vec<VifId> = shelf.vifs.keys().cloned().collect();
                for id in &free {
                    shelf.pool.discard(id);
                }
            }
            self.turn(&mut state, key, &mut work);
        }
        Ok(work)
    }
}
