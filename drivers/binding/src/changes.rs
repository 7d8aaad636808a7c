//! Counts the changes of the kernel and of Open vSwitch, for tests that kill the daemon between any two of them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of changes that still succeed; the next one fails, as in a killed daemon.
pub(crate) static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Counts a change. Fails when the daemon has been killed.
pub(crate) fn count() -> io::Result<()> {
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    left.map(drop).map_err(|_| io::Error::other("the daemon was killed"))
}
