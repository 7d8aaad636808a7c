//! Executes a [`PollSchedule`]: makes the requests that are due, for all callers that wait for a resource.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::DriverError;
use tokio::time::Instant;

use super::coalescer::Coalescer;
use super::schedule::{Pacing, PollSchedule, PollState};
use crate::error::{DriverResult, Result};

/// A poller of the status of resources, with at most one request in flight, at the times that a [`PollSchedule`] determines.
#[derive(Debug)]
pub(crate) struct Poller<K, P: Pacing> {
    schedule: Mutex<PollSchedule<K, P>>,
    requests: Coalescer<K, DriverResult<()>>,
}

impl<K, P: Pacing> Default for Poller<K, P> {
    fn default() -> Self {
        Self { schedule: Mutex::default(), requests: Coalescer::default() }
    }
}

impl<K: Clone + Eq + Hash + Ord, P: Pacing> Poller<K, P> {
    /// Locks the schedule of the polls, and returns it.
    pub(crate) fn schedule(&self) -> MutexGuard<'_, PollSchedule<K, P>> {
        self.schedule.lock()
    }

    /// Returns the state of a resource. If its poll is due, `fetch` reads the status of all resources that are polled with it. The map that
    /// `fetch` returns contains the final status of each resource, or `None` for a pending one, and lacks resources that do not exist. The
    /// error of `fetch` is returned.
    pub(crate) async fn state<F>(
        &self,
        key: &K,
        fetch: impl Fn(Vec<K>) -> F,
    ) -> DriverResult<PollState<P::Status>>
    where
        F: Future<Output = Result<HashMap<K, Option<P::Status>>>>,
    {
        let state = self.schedule().state(key, Instant::now());
        if let Some(state) = state {
            return Ok(state);
        }
        let fetch = &fetch;
        let poll = |keys: Vec<K>| async move {
            let started = Instant::now();
            // The previous poll may have included some of the keys while their callers waited for it.
            let batch = self.schedule().batch(&keys, started);
            let found = if batch.is_empty() { Ok(HashMap::new()) } else { fetch(batch.clone()).await };
            let polled = found.map_err(DriverError::from).map(|mut found| {
                let status = |key: &K| found.remove(key).unwrap_or(Some(P::MISSING));
                let results: Vec<_> = batch.iter().map(status).collect();
                self.schedule().record(batch.into_iter().zip(results), started, Instant::now());
            });
            vec![polled; keys.len()]
        };
        match self.requests.call(key.clone(), poll).await {
            Ok(()) => Ok(self.schedule().state_after_poll(key, Instant::now())),
            // An earlier poll may have answered while this one was queued.
            Err(error) => self.schedule().state(key, Instant::now()).ok_or(error),
        }
    }
}
