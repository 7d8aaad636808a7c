//! The workloads on a machine, as of the last reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::app_hosting::{HostedPod, HostedPods};
use staffetta_driver::{Owner, Uid};
use tokio::time::Instant;

/// The number of consecutive successful reads of a machine that do not contain a workload of an earlier read, after which the workload
/// counts as gone.
const ABSENCES: u8 = 2;

/// The workloads on a machine, by the UID of their pod.
#[derive(Default)]
pub(crate) struct Inventory(HashMap<Uid, Entry>);

/// A workload that one of the last two successful reads of the machine contained.
struct Entry {
    workload: Arc<HostedPod>,
    /// The number of consecutive successful reads of the machine that did not contain the workload.
    absences: u8,
    /// The time since which the workload has had no pod in the cluster; `None` if there is a pod, the workload does not
    /// carry the ownership mark of this cluster, or the last read did not contain the workload.
    unowned_since: Option<Instant>,
}

impl Entry {
    /// Returns `true` if the workload carries the ownership mark of this cluster and has had no pod for `grace`.
    fn is_orphan(&self, now: Instant, grace: Duration) -> bool {
        self.unowned_since.is_some_and(|since| now.saturating_duration_since(since) >= grace)
    }
}

impl Inventory {
    /// Returns the workload of the pod with this UID; `None` if neither of the last two successful reads contained it.
    pub(crate) fn get(&self, uid: &Uid) -> Option<&Arc<HostedPod>> {
        self.0.get(uid).map(|entry| &entry.workload)
    }

    /// Returns all workloads that one of the last two successful reads of the machine contained.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Arc<HostedPod>> {
        self.0.values().map(|entry| &entry.workload)
    }

    /// Returns `true` if the workload of the pod with this UID carries the ownership mark of this cluster and has had
    /// no pod for `grace`.
    pub(crate) fn has_orphan(&self, uid: &Uid, now: Instant, grace: Duration) -> bool {
        self.0.get(uid).is_some_and(|entry| entry.is_orphan(now, grace))
    }

    /// Records a successful read of the machine. `has_owner` returns `true` for the UID of a pod that exists. Returns the owning pods of
    /// workloads that are new, changed or gone, and, at each read, the former pods of workloads with the ownership mark of this cluster
    /// that have had no pod for at least `grace`.
    pub(crate) fn record_read(
        &mut self,
        answer: &HostedPods,
        has_owner: impl Fn(&Uid) -> bool,
        now: Instant,
        grace: Duration,
    ) -> Vec<Owner> {
        let (mut due, mut present) = (Vec::new(), HashMap::with_capacity(answer.len()));
        for workload in answer.iter() {
            let uid = &workload.owner.uid;
            // A machine may list an owner twice.
            let before = present.remove(uid).or_else(|| self.0.remove(uid));
            let known_since = before.as_ref().and_then(|entry| entry.unowned_since);
            let unowned = workload.marked && !has_owner(uid);
            let unowned_since = unowned.then(|| known_since.unwrap_or(now));
            let same = before.map(|before| before.workload).filter(|before| **before == *workload);
            let changed = same.is_none();
            let workload = same.unwrap_or_else(|| Arc::new(workload.clone()));
            let entry = Entry { workload, absences: 0, unowned_since };
            if changed || entry.is_orphan(now, grace) {
                due.push(entry.workload.owner.clone());
            }
            present.insert(uid.clone(), entry);
        }
        for (uid, entry) in std::mem::replace(&mut self.0, present) {
            let absences = entry.absences + 1;
            if absences < ABSENCES {
                self.0.insert(uid, Entry { absences, unowned_since: None, ..entry });
            } else {
                due.push(entry.workload.owner.clone());
            }
        }
        due
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use staffetta_driver::app_hosting::{DeploymentStage, HostedContainer, HostedContainerState};

    use super::*;

    /// Returns a workload with one container.
    pub(crate) fn workload(uid: &str, running: bool) -> HostedPod {
        let state = if running {
            HostedContainerState::Running
        } else {
            HostedContainerState::Waiting { stage: DeploymentStage::Installing, message: String::new() }
        };
        let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
        let containers = vec![HostedContainer { name: "app".into(), id: "id".into(), state }];
        HostedPod { owner, marked: true, containers, ip: None }
    }

    fn look(inventory: &mut Inventory, workloads: &[HostedPod]) -> Vec<String> {
        let due = inventory.record_read(&workloads.into(), |_| true, Instant::now(), Duration::ZERO);
        due.into_iter().map(|owner| owner.name).collect()
    }

    #[test]
    fn only_what_differs_is_due() {
        let mut inventory = Inventory::default();
        assert_eq!(look(&mut inventory, &[workload("a", false), workload("b", false)]), ["a", "b"]);
        assert_eq!(look(&mut inventory, &[workload("a", false), workload("b", true)]), ["b"]);
        assert!(look(&mut inventory, &[workload("a", false), workload("b", true)]).is_empty());
    }

    #[test]
    fn a_pod_is_gone_only_after_two_good_reads_without_it() {
        let mut inventory = Inventory::default();
        look(&mut inventory, &[workload("a", true)]);
        assert!(look(&mut inventory, &[]).is_empty() && inventory.workloads().count() == 1);
        assert!(look(&mut inventory, &[workload("a", true)]).is_empty(), "it was there all the time");
        assert!(look(&mut inventory, &[]).is_empty(), "the count starts anew");
        assert_eq!((look(&mut inventory, &[]).len(), inventory.workloads().count()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_ours_and_has_long_had_no_owner_is_an_orphan() {
        let theirs = HostedPod { marked: false, ..workload("theirs", true) };
        let there: HostedPods = [workload("lives", true), workload("gone", true), theirs].into();
        let (mut inventory, grace) = (Inventory::default(), Duration::from_secs(60));
        let mut look = |owned: &[&str]| {
            let has_owner = |uid: &Uid| owned.contains(&uid.as_str());
            let due = inventory.record_read(&there, has_owner, Instant::now(), grace);
            let gone = inventory.has_orphan(&"gone".into(), Instant::now(), grace);
            (due.into_iter().map(|owner| owner.name).collect::<Vec<_>>(), gone)
        };
        assert_eq!(look(&["lives"]).0, ["lives", "gone", "theirs"], "all are new");
        tokio::time::advance(grace / 2).await;
        assert!(look(&["lives", "gone"]).0.is_empty(), "its owner was only late");
        tokio::time::advance(grace / 2).await;
        assert!(look(&["lives"]).0.is_empty(), "the time starts anew");
        tokio::time::advance(grace).await;
        assert_eq!(look(&["lives"]), (vec!["gone".to_owned()], true));
        assert_eq!(look(&["lives"]).0, ["gone"], "until it is removed");
    }
}
