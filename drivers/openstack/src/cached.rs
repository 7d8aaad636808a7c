//! A cache of responses whose entries expire.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Result;

/// Caches values by key, each for the same fixed time. Of simultaneous calls for the same key, one makes a request and the others wait for
/// its value or its error. If that call is cancelled, the next waiting call makes a request.
#[derive(Debug)]
pub(crate) struct Cached<K, T> {
    ttl: Duration,
    slots: Mutex<HashMap<K, CacheSlot<T>>>,
}

/// The result of the last request for one key, and a time: only calls that began before it get this result. For a value, it is the time at
/// which the value expires; for an error, that at which the request failed. `None` before the first result. Locked during a request.
type CacheSlot<T> = Arc<tokio::sync::Mutex<Option<(Result<T>, Instant)>>>;

impl<K: Clone + Eq + Hash, T: Clone> Cached<K, T> {
    /// Creates an empty cache in which each value is valid for `ttl`.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, slots: Mutex::default() }
    }

    /// Returns the cached value of `key` or, if there is no valid one, the result of `request`. Errors are not cached: only the calls that
    /// waited for a failed request return its error.
    pub(crate) async fn get<F>(&self, key: &K, request: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (began, slot) = (Instant::now(), self.slot(key));
        let mut slot = slot.lock().await;
        if let Some((result, _)) = slot.as_ref().filter(|(_, until)| began < *until) {
            return result.clone();
        }
        let result = request().await;
        let valid = if result.is_ok() { self.ttl } else { Duration::ZERO };
        *slot = Some((result.clone(), Instant::now() + valid));
        result
    }

    /// Returns the slot that caches the result for `key`. If there is none, slots without a valid value are removed first (except those
    /// that a call is using), and a new one is added.
    fn slot(&self, key: &K) -> CacheSlot<T> {
        let (mut slots, now) = (self.slots.lock(), Instant::now());
        if !slots.contains_key(key) {
            let is_valid = |slot: &CacheSlot<T>| {
                slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|(_, until)| now < *until))
            };
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_valid(slot));
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;

    use super::*;
    use crate::error::OpenStackError;

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_together_share_one_question_and_its_answer_for_a_while() {
        let (cached, asked) = (Cached::new(Duration::from_secs(60)), Cell::new(0));
        let ask = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(asked.get())
        };
        let (one, other) = tokio::join!(cached.get(&"a", ask), cached.get(&"a", ask));
        let beside = cached.get(&"b", ask).await;
        assert_eq!([one, other, beside].map(Result::unwrap), [1, 1, 2]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(cached.get(&"a", ask).await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_by_those_who_waited_for_it_and_not_kept() {
        let (cached, asked) = (Cached::new(Duration::from_secs(60)), Cell::new(0));
        let ask = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_secs(30)).await;
            if asked.get() == 1 { Err(OpenStackError::unavailable("look", "no")) } else { Ok(asked.get()) }
        };
        let failed = join_all((0..100).map(|_| cached.get(&(), ask))).await;
        assert!(failed.into_iter().all(|result| result.is_err()));
        assert_eq!((cached.get(&(), ask).await.unwrap(), asked.get()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_would_get_any_more_take_no_room() {
        let cached = Cached::new(Duration::from_secs(60));
        let ask = async |key| cached.get(&key, || async { Ok(key) }).await.unwrap();
        for key in 0..100 {
            ask(key).await;
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        ask(100).await;
        assert_eq!(cached.slots.lock().len(), 101);
        tokio::time::advance(Duration::from_secs(30)).await;
        let refused = || async { Err(OpenStackError::unavailable("look", "no")) };
        cached.get(&101, refused).await.unwrap_err();
        ask(102).await;
        assert_eq!(cached.slots.lock().len(), 2);
    }
}
