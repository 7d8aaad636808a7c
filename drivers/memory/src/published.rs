//! The VIFs in the annotations of pods, as a test sets them.

use std::collections::HashSet;

use async_trait::async_trait;
use parking_lot::Mutex;
use staffetta_driver::{DriverError, PublishedVifs, VifId};

/// The VIFs in the annotations of the pods of a cluster without an API server. At first, there are none.
#[derive(Default)]
pub struct MemoryPublishedVifs(Mutex<HashSet<VifId>>);

impl MemoryPublishedVifs {
    /// Replaces the VIFs in the annotations.
    pub fn set(&self, vifs: impl IntoIterator<Item = VifId>) {
        *self.0.lock() = vifs.into_iter().collect();
    }
}

#[async_trait]
impl PublishedVifs for MemoryPublishedVifs {
    async fn published_vifs(&self) -> Result<HashSet<VifId>, DriverError> {
        Ok(self.0.lock().clone())
    }
}
