//! A part of a figure for each thread, so that threads that count at a time do not wait for one another.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Into how many parts a figure is divided. Where there are more threads, some share one.
pub(super) const SHARDS: usize = 16;

/// Something of one thread, in cache lines of its own; processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shard<T>(T);

/// Something in parts.
#[derive(Debug)]
pub(super) struct Shards<T>(Box<[Shard<T>]>);

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl<T> Shards<T> {
    /// The part of this thread.
    pub(super) fn mine(&self) -> &T {
        &self.0[place()].0
    }

    /// All parts.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

/// Which part is that of this thread: the threads take turns.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let place = PLACE.get();
    if place < SHARDS {
        return place;
    }
    let place = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    PLACE.set(place);
    place
}
