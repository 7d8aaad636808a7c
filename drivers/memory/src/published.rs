//! The VIFs in the annotations of pods, as a test sets them.

use std::collections::HashSet;

use async_trait::async_trait;
use parking_lot::Mutex;
use staffetta_driver::{DriverError, PublishedVifs, Reason, VifId};

/// The VIFs in the annotations of the pods of a cluster without an API server. At first, there are none.
#[derive(Default)]
pub struct MemoryPublishedVifs(Mutex<MemoryAnnotations>);

#[derive(Default)]
struct MemoryAnnotations {
    vifs: HashSet<VifId>,
    fails: bool,
}

impl MemoryPublishedVifs {
    /// Replaces the VIFs in the annotations.
    pub fn set(&self, vifs: impl IntoIterator<Item = VifId>) {
        self.0.lock().vifs = vifs.into_iter().collect();
    }

    /// Lets each read fail (`true`), or none.
    pub fn set_failing(&self, fails: bool) {
        self.0.lock().fails = fails;
    }
}

#[async_trait]
impl PublishedVifs for MemoryPublishedVifs {
    async fn published_vifs(&self) -> Result<HashSet<VifId>, DriverError> {
        let annotations = self.0.lock();
        if annotations.fails {
            return Err(DriverError::new(Reason::Unavailable, "list the annotations of pods"));
        }
        Ok(annotations.vifs.clone())
    }
}
