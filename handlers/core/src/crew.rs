//! How many tasks run what is ready: one for each thread, and one more for each that a handler makes wait.
//!
//! A task for each message would be simpler, and costs more than the rest of the chain together.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use crossbeam_queue::SegQueue;
use tokio::runtime::Handle;

/// How often a runner looks for something before it ends, where another thread may add it: some microseconds.
const LOOKS: usize = 64;

/// What is ready to be run, and the places of those who run it.
///
/// A runner holds a [`Place`] while it runs, and leaves it when it has to wait. Whoever adds something, and whoever leaves
/// a place while something is ready, starts a runner if a place is free; so nothing that is ready waits for something that
/// waits.
pub(crate) struct Crew<T> {
    ready: SegQueue<T>,
    taken: Arc<AtomicUsize>,
    places: usize,
}

/// The right to run what is ready; free again when it is dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T> Crew<T> {
    /// A place for each thread of the runtime in which it is made; outside of one, for each that the machine can run at a time.
    pub(crate) fn new() -> Self {
        let threads = Handle::try_current().map(|runtime| runtime.metrics().num_workers());
        let places = threads.unwrap_or_else(|_| available_parallelism().map_or(1, NonZeroUsize::get));
        Self { ready: SegQueue::new(), taken: Arc::default(), places }
    }

    /// Adds something to run. Answers a place when a runner must be started for it.
    pub(crate) fn add(&self, something: T) -> Option<Place> {
        self.ready.push(something);
        self.take_place()
    }

    /// The next thing to run for who holds `place`, or takes a new one after having waited. `None` when the runner is to
    /// end.
    pub(crate) fn next(&self, place: &mut Option<Place>) -> Option<T> {
        loop {
            if place.is_none() {
                *place = Some(self.take_place()?);
            }
            if let Some(something) = self.pop() {
                return Some(something);
            }
            // Who adds something now either finds the place free, or is found by the look after it.
            *place = None;
            if self.ready.is_empty() {
                return None;
            }
        }
    }

    /// What is ready, or becomes so in a moment: to end a runner and to start one costs more than to look again.
    fn pop(&self) -> Option<T> {
        let looks = if self.places > 1 { LOOKS } else { 0 };
        for _ in 0..looks {
            if let Some(something) = self.ready.pop() {
                return Some(something);
            }
            std::hint::spin_loop();
        }
        self.ready.pop()
    }

    /// Leaves `place`. Answers a place when a runner must be started for what is ready.
    pub(crate) fn leave(&self, place: Place) -> Option<Place> {
        drop(place);
        if self.ready.is_empty() { None } else { self.take_place() }
    }

    fn take_place(&self) -> Option<Place> {
        let take = |taken| (taken < self.places).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.is_ok().then(|| Place(Arc::clone(&self.taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(places: usize) -> Crew<u8> {
        Crew { ready: SegQueue::new(), taken: Arc::default(), places }
    }

    #[test]
    fn there_are_no_more_runners_than_places() {
        let crew = crew(1);
        let mut place = crew.add(1);
        assert!(place.is_some());
        assert!(crew.add(2).is_none(), "the one runner comes to it");
        assert_eq!(
            (crew.next(&mut place), crew.next(&mut place), crew.next(&mut place)),
            (Some(1), Some(2), None)
        );
        assert!(place.is_none() && crew.add(3).is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn there_is_a_place_for_each_thread_that_runs_tasks() {
        assert_eq!(Crew::<u8>::new().places, 3);
    }

    #[test]
    fn who_has_to_wait_leaves_its_place_to_another() {
        let crew = crew(1);
        let mut first = crew.add(1);
        crew.next(&mut first);
        crew.add(2);
        let mut second = crew.leave(first.take().unwrap());
        assert_eq!(crew.next(&mut second), Some(2));
        assert_eq!(crew.next(&mut first), None, "it has waited, and its place is taken");
        drop(second);
        let third = crew.add(3);
        assert!(third.is_some());
    }
}
