//! Locks by name, one for each pod that a command works on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by name. A lock exists only while somebody holds it or waits for it.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl Locks {
    /// Waits for the lock `name`. Those who wait get it in the order of their calls.
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let lock = locks.get(name).and_then(Weak::upgrade).unwrap_or_default();
            locks.insert(name.to_owned(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_excludes_others_of_its_name_only_and_vanishes() {
        let locks = Locks::default();
        let held = locks.lock("a").await;
        let other = locks.lock("b").await;
        let mut waiting = Box::pin(locks.lock("a"));
        assert!(futures_poll(&mut waiting).await.is_none());
        drop(held);
        drop(waiting.await);
        drop(other);
        drop(locks.lock("c").await);
        assert_eq!(locks.0.lock().len(), 1);
    }

    async fn futures_poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = std::future::ready(()) => None,
        }
    }
}
