//! A queue of pods that are to be reconciled after a delay.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_driver::Uid;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::triggers::PodDue;

/// Pods that are to be reconciled later, each once, at the earliest requested time.
#[derive(Default)]
pub(crate) struct DelayQueue {
    times: Mutex<Times>,
    /// Notified when a reconciliation of a pod is scheduled.
    sooner: Notify,
}

/// The scheduled reconciliations of pods, in two orders: by time and by UID.
#[derive(Default)]
struct Times {
    /// The pods, by the time of their reconciliation and their UID.
    order: BTreeMap<(Instant, Uid), PodDue>,
    /// The time of the reconciliation of each pod, by UID.
    due: HashMap<Uid, Instant>,
}

impl DelayQueue {
    /// Schedules a reconciliation of the pod after `delay`, unless an earlier one is scheduled.
    pub(crate) fn wake(&self, pod: PodDue, delay: Duration) {
        let (uid, at) = (pod.owner().uid, Instant::now() + delay);
        let mut times = self.times.lock();
        if times.due.get(&uid).is_some_and(|sooner| *sooner <= at) {
            return;
        }
        if let Some(later) = times.due.insert(uid.clone(), at) {
            times.order.remove(&(later, uid.clone()));
        }
        times.order.insert((at, uid), pod);
        drop(times);
        self.sooner.notify_one();
    }

    /// Cancels the scheduled reconciliation of a pod.
    pub(crate) fn forget(&self, uid: &Uid) {
        let mut times = self.times.lock();
        if let Some(at) = times.due.remove(uid) {
            times.order.remove(&(at, uid.clone()));
        }
    }

    /// Waits until a pod is due, then removes the pod from the queue and returns it.
    pub(crate) async fn next(&self) -> PodDue {
        loop {
            let first = self.times.lock().order.first_key_value().map(|((at, _), _)| *at);
            match first {
                Some(at) if at <= Instant::now() => {
                    let mut times = self.times.lock();
                    if let Some(((_, uid), pod)) = times.order.pop_first() {
                        times.due.remove(&uid);
                        return pod;
                    }
                }
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.sooner.notified()).await;
                }
                None => self.sooner.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Owner;

    use super::*;

    fn pod(uid: &str) -> PodDue {
        let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
        PodDue::new(&owner, &"n1".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_comes_once_at_the_soonest_requested_time() {
        let (delay_queue, began) = (DelayQueue::default(), Instant::now());
        delay_queue.wake(pod("late"), Duration::from_secs(9));
        delay_queue.wake(pod("soon"), Duration::from_secs(5));
        delay_queue.wake(pod("soon"), Duration::from_secs(2));
        delay_queue.wake(pod("soon"), Duration::from_secs(7));
        delay_queue.wake(pod("never"), Duration::from_secs(1));
        delay_queue.forget(&"never".into());
        let mut came = Vec::new();
        for _ in 0..2 {
            let pod = delay_queue.next().await;
            came.push((pod.owner().name, began.elapsed().as_secs()));
        }
        assert_eq!(came, [("soon".to_owned(), 2), ("late".to_owned(), 9)]);
        let nothing = tokio::time::timeout(Duration::from_secs(60), delay_queue.next()).await;
        assert!(nothing.is_err(), "each came once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sooner_time_ends_the_wait_for_a_later_one() {
        let delay_queue = std::sync::Arc::new(DelayQueue::default());
        delay_queue.wake(pod("late"), Duration::from_secs(60));
        let waiting = {
            let delay_queue = std::sync::Arc::clone(&delay_queue);
            tokio::spawn(async move { delay_queue.next().await.owner().name })
        };
        tokio::task::yield_now().await;
        delay_queue.wake(pod("soon"), Duration::from_secs(1));
        let first = tokio::time::timeout(Duration::from_secs(2), waiting).await;
        assert_eq!(first.expect("in time").expect("it ends"), "soon");
    }
}
