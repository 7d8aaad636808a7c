//! Answers that stay true for a while.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Keeps answers for a while, and lets many who ask for the same one at the same time share one question.
pub(crate) struct Cached<K, T> {
    fresh: Duration,
    answers: Mutex<Answers<K, T>>,
}

/// For each key a place for its answer, which is locked while somebody asks.
type Answers<K, T> = HashMap<K, Place<T>>;
type Place<T> = Arc<tokio::sync::Mutex<Option<Answer<T>>>>;

struct Answer<T> {
    value: T,
    until: Instant,
}

impl<K, T> fmt::Debug for Cached<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("fresh", &self.fresh).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Cached<K, T> {
    /// Answers are kept for `fresh`.
    pub(crate) fn new(fresh: Duration) -> Self {
        Self { fresh, answers: Mutex::default() }
    }

    /// The answer for `key`: the one that is kept, or what `ask` answers. A failure is not kept; the next one asks again.
    pub(crate) async fn get<E, F>(&self, key: &K, ask: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let place = self.place(key);
        let mut place = place.lock().await;
        if let Some(answer) = place.as_ref().filter(|answer| Instant::now() < answer.until) {
            return Ok(answer.value.clone());
        }
        *place = None;
        let value = match ask().await {
            Ok(value) => value,
            Err(error) => {
                drop(place);
                self.forget(key);
                return Err(error);
            }
        };
        *place = Some(Answer { value: value.clone(), until: Instant::now() + self.fresh });
        Ok(value)
    }

    /// The place for the answer of `key`. With each new one, those go whose answer nobody would get any more.
    fn place(&self, key: &K) -> Place<T> {
        let mut answers = self.answers();
        if let Some(place) = answers.get(key) {
            return Arc::clone(place);
        }
        let now = Instant::now();
        answers.retain(|_, place| match place.try_lock() {
            Ok(answer) => {
                Arc::strong_count(place) > 1 || answer.as_ref().is_some_and(|answer| now < answer.until)
            }
            // Somebody asks just now.
            Err(_) => true,
        });
        Arc::clone(answers.entry(key.clone()).or_default())
    }

    /// Forgets the answer for `key`: it is known to be wrong by now.
    pub(crate) fn forget(&self, key: &K) {
        self.answers().remove(key);
    }

    fn answers(&self) -> MutexGuard<'_, Answers<K, T>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(cached.answers().is_empty());
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
        assert_eq!(cached.answers().len(), 101);
        tokio::time::advance(Duration::from_secs(30)).await;
        ask(101).await;
        assert_eq!(cached.answers().len(), 2);
    }
}
