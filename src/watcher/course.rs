//! What a watch tells of itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use staffetta_handler::{Change, Kind};
use tokio::time::Instant;

use crate::lock::lock;

/// How a watch goes: written by its task, read by whoever asks.
#[derive(Default)]
pub(super) struct Course {
    events: [AtomicU64; Change::ALL.len()],
    lists: AtomicU64,
    errors: AtomicU64,
    /// The last error, until the watch goes on.
    trouble: Mutex<Option<String>>,
    /// Since when the task is at what the server said last.
    works: Mutex<Option<Instant>>,
}

/// How a watch is at one moment.
#[derive(Clone, Debug)]
pub struct Sight {
    /// The kind that is watched.
    pub kind: Kind,
    /// Whether all objects of the kind were delivered once.
    pub listed: bool,
    /// How many objects exist, as far as the watch has said.
    pub objects: usize,
    /// How many of them cannot be decoded.
    pub undecodable: usize,
    /// Whether the watch ended by itself, which none ever should.
    pub ended: bool,
    /// How it went until now.
    pub so_far: SoFar,
}

/// How a watch went until now.
#[derive(Clone, Debug)]
pub struct SoFar {
    /// How many events were delivered, by change in the order of [`Change::ALL`].
    pub events: [u64; Change::ALL.len()],
    /// How many lists were read to their end.
    pub lists: u64,
    /// How many errors there were.
    pub errors: u64,
    /// The last error, until the watch goes on.
    pub trouble: Option<String>,
    /// For how long the watch has been at what the server said last. To wait for room does not count.
    pub works: Option<Duration>,
}

/// After how long at one thing a watch counts as stuck. What it does is take events into queues: microseconds.
const STUCK: Duration = Duration::from_secs(60);

impl Sight {
    /// What is the matter when the watch does not go on, though nothing outside of this process keeps it from that.
    pub fn stuck(&self) -> Option<String> {
        let kind = &self.kind.name;
        if self.ended {
            return Some(format!("watch {kind}: it ended by itself"));
        }
        let works = self.so_far.works.filter(|works| *works > STUCK)?;
        Some(format!("watch {kind}: it has been at one event for {} s", works.as_secs()))
    }
}

impl Course {
    /// Something happened to an object.
    pub(super) fn happened(&self, change: Change) {
        self.events[change as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A list was read to its end.
    pub(super) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// The list or the watch failed.
    pub(super) fn failed(&self, error: String) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *lock(&self.trouble) = Some(error);
    }

    /// The watch goes on.
    pub(super) fn goes_on(&self) {
        *lock(&self.trouble) = None;
    }

    /// The task begins to work at what the server said, or has done so.
    pub(super) fn works(&self, works: bool) {
        *lock(&self.works) = works.then(Instant::now);
    }

    pub(super) fn so_far(&self) -> SoFar {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SoFar {
            events: self.events.each_ref().map(count),
            lists: count(&self.lists),
            errors: count(&self.errors),
            trouble: lock(&self.trouble).clone(),
            works: lock(&self.works).map(|since| since.elapsed()),
        }
    }
}
