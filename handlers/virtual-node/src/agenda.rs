//! When which pod is worth another look.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::signals::PodDue;

/// The times at which pods are worth another look: one a pod, the soonest that was asked for.
#[derive(Default)]
pub(crate) struct Agenda {
    times: Mutex<Times>,
    sooner: Notify,
}

#[derive(Default)]
struct Times {
    order: BTreeSet<(Instant, String)>,
    due: HashMap<String, (Instant, PodDue)>,
}

impl Agenda {
    /// The pod is worth another look after `wait`.
    pub(crate) fn wake(&self, pod: PodDue, wait: Duration) {
        let (uid, at) = (pod.owner().uid.as_str().to_owned(), Instant::now() + wait);
        let mut times = self.times();
        match times.due.get(&uid) {
            Some((sooner, _)) if *sooner <= at => return,
            Some((later, _)) => {
                let later = *later;
                times.order.remove(&(later, uid.clone()));
            }
            None => {}
        }
        times.order.insert((at, uid.clone()));
        times.due.insert(uid, (at, pod));
        drop(times);
        self.sooner.notify_one();
    }

    /// Nothing is to be done for the pod.
    pub(crate) fn forget(&self, uid: &str) {
        let mut times = self.times();
        if let Some((at, _)) = times.due.remove(uid) {
            times.order.remove(&(at, uid.to_owned()));
        }
    }

    /// Waits for the next pod whose time comes.
    pub(crate) async fn next(&self) -> PodDue {
        loop {
            let first = self.times().order.first().map(|(at, _)| *at);
            match first {
                Some(at) if at <= Instant::now() => {
                    if let Some(pod) = self.take_first() {
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

    fn take_first(&self) -> Option<PodDue> {
        let mut times = self.times();
        let (_, uid) = times.order.pop_first()?;
        times.due.remove(&uid).map(|(_, pod)| pod)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn a_pod_comes_once_at_the_soonest_time_that_was_asked_for() {
        let (agenda, began) = (Agenda::default(), Instant::now());
        agenda.wake(pod("late"), Duration::from_secs(9));
        agenda.wake(pod("soon"), Duration::from_secs(5));
        agenda.wake(pod("soon"), Duration::from_secs(2));
        agenda.wake(pod("soon"), Duration::from_secs(7));
        agenda.wake(pod("never"), Duration::from_secs(1));
        agenda.forget("never");
        let mut came = Vec::new();
        for _ in 0..2 {
            let pod = agenda.next().await;
            came.push((pod.owner().name, began.elapsed().as_secs()));
        }
        assert_eq!(came, [("soon".to_owned(), 2), ("late".to_owned(), 9)]);
        let nothing = tokio::time::timeout(Duration::from_secs(60), agenda.next()).await;
        assert!(nothing.is_err(), "each came once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_of_a_sooner_time() {
        let agenda = std::sync::Arc::new(Agenda::default());
        agenda.wake(pod("late"), Duration::from_secs(60));
        let waiting = {
            let agenda = std::sync::Arc::clone(&agenda);
            tokio::spawn(async move { agenda.next().await.owner().name })
        };
        tokio::task::yield_now().await;
        agenda.wake(pod("soon"), Duration::from_secs(1));
        let first = tokio::time::timeout(Duration::from_secs(2), waiting).await;
        assert_eq!(first.expect("in time").expect("it ends"), "soon");
    }
}
