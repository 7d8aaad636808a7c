//! Counts the changes of the kernel and the requests to OVSDB, for tests that kill the daemon between any two of them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of changes of the kernel and of requests to OVSDB, reads included, that succeed from now on, set by a test. All later ones
/// fail, as in a daemon that was killed.
pub(crate) static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Counts a change of the kernel, or a request to OVSDB, that is about to be made. Fails if [`LEFT`] is 0: the daemon counts as killed.
pub(crate) fn count() -> io::Result<()> {
    let left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    left.map(drop).map_err(|_| io::Error::other("the daemon was killed"))
}
