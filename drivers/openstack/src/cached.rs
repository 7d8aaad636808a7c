//! A cache of responses whose entries expire.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// Caches values by key, each for the same fixed time. Of simultaneous calls for the same key, one makes a request and the others wait for
/// its value. If the request fails, the next waiting call makes one.
#[derive(Debug)]
pub(crate) struct Cached<K, T> {
    ttl: Duration,
    slots: Mutex<HashMap<K, CacheSlot<T>>>,
}

/// The value of one key and the time at which it expires, or `None` without a value. The slot is locked while a request reads the value.
type CacheSlot<T> = Arc<tokio::sync::Mutex<Option<(T, Instant)>>>;

impl<K: Clone + Eq + Hash, T: Clone> Cached<K, T> {
    /// Creates an empty cache in which each value is valid for `ttl`.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, slots: Mutex::default() }
    }

    /// Returns the cached value of `key` or, if there is no valid one, the result of `request`. Errors are not cached.
    pub(crate) async fn get<E, F>(&self, key: &K, request: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let slot = self.slot(key);
        let mut slot = slot.lock().await;
        if let Some((value, _)) = slot.as_ref().filter(|(_, until)| Instant::now() < *until) {
            return Ok(value.clone());
        }
        *slot = None;
        let value = request().await;
        match &value {
            Ok(value) => *slot = Some((value.clone(), Instant::now() + self.ttl)),
            Err(_) => self.forget(key),
        }
        value
    }

    /// Returns the slot of `key`. If there is none, slots whose values have expired are removed first (except
    /// those that a call holds), and a new one is added.
    fn slot(&self, key: &K) -> CacheSlot<T> {
        let (mut slots, now) = (lock(&self.slots), Instant::now());
        if !slots.contains_key(key) {
            let is_valid = |slot: &CacheSlot<T>| {
                slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|(_, until)| now < *until))
            };
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_valid(slot));
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }

    /// Drops the cached value of `key`, so that the next call reads it again.
    pub(crate) fn forget(&self, key: &K) {
        lock(&self.slots).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_together_share_one_question_and_its_answer_for_a_while() {
        let (cached, asked) = (Cached::new(Duration::from_secs(60)), Cell::new(0));
        let ask = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, ()>(asked.get())
        };
        let (one, other) = tokio::join!(cached.get(&"a", ask), cached.get(&"a", ask));
        assert_eq!((one, other, cached.get(&"b", ask).await), (Ok(1), Ok(1), Ok(2)));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(cached.get(&"a", ask).await, Ok(3));
        cached.forget(&"a");
        assert_eq!(cached.get(&"a", ask).await, Ok(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let cached = Cached::new(Duration::from_secs(60));
        assert_eq!(cached.get(&(), || async { Err::<u8, _>("no") }).await, Err("no"));
        assert!(lock(&cached.slots).is_empty());
        assert_eq!(cached.get(&(), || async { Ok::<_, &str>(1) }).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_would_get_any_more_take_no_room() {
        let cached = Cached::new(Duration::from_secs(60));
        let ask = async |key| cached.get(&key, || async { Ok::<_, ()>(key) }).await.unwrap();
        for key in 0..100 {
            ask(key).await;
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        ask(100).await;
        assert_eq!(lock(&cached.slots).len(), 101);
        tokio::time::advance(Duration::from_secs(30)).await;
        ask(101).await;
        assert_eq!(lock(&cached.slots).len(), 2);
    }
}
