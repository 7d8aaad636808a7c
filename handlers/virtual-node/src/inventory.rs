//! What was seen on a machine.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use staffetta_driver::{Owner, Uid};

use crate::workload::{Workload, Workloads};

/// How many good reads in a row must not have a pod that was there before it counts as gone.
const ABSENCES: u8 = 2;

/// What was seen on a machine, by owner.
#[derive(Default)]
pub(crate) struct Inventory {
    /// The last answer, to recognise the same one.
    answer: Option<Workloads>,
    seen: HashMap<Uid, Seen>,
}

struct Seen {
    workload: Arc<Workload>,
    absences: u8,
}

impl Inventory {
    /// What stands for a pod.
    pub(crate) fn get(&self, uid: &Uid) -> Option<&Arc<Workload>> {
        self.seen.get(uid).map(|seen| &seen.workload)
    }

    /// All that is there.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.seen.values().map(|seen| &seen.workload)
    }

    /// Takes in an answer of the machine. Answers whose part of it changed.
    pub(crate) fn take_in(&mut self, answer: Workloads) -> Vec<Owner> {
        let same = self.answer.as_ref().is_some_and(|before| Arc::ptr_eq(before, &answer));
        let due = if same && self.seen.len() == answer.len() { Vec::new() } else { self.changes(&answer) };
        self.answer = Some(answer);
        due
    }

    fn changes(&mut self, answer: &Workloads) -> Vec<Owner> {
        let mut due = Vec::new();
        for seen in self.seen.values_mut() {
            seen.absences = seen.absences.saturating_add(1);
        }
        for workload in answer.iter() {
            match self.seen.entry(workload.owner.uid.clone()) {
                Entry::Occupied(mut entry) => {
                    let seen = entry.get_mut();
                    seen.absences = 0;
                    if seen.workload != *workload {
                        due.push(workload.owner.clone());
                    }
                    seen.workload = Arc::clone(workload);
                }
                Entry::Vacant(vacant) => {
                    due.push(workload.owner.clone());
                    vacant.insert(Seen { workload: Arc::clone(workload), absences: 0 });
                }
            }
        }
        self.seen.retain(|_, seen| {
            let gone = seen.absences >= ABSENCES;
            if gone {
                due.push(seen.workload.owner.clone());
            }
            !gone
        });
        due
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::{ContainerSight, ContainerState};

    /// A pod of one container.
    pub(crate) fn workload(uid: &str, running: bool) -> Arc<Workload> {
        let state = if running {
            ContainerState::Running { since: None }
        } else {
            ContainerState::Waiting { reason: "ContainerCreating".into(), message: String::new() }
        };
        let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
        let containers = vec![ContainerSight { name: "app".into(), id: "id".into(), state }];
        Arc::new(Workload { owner, ours: true, containers, ip: None })
    }

    fn look(inventory: &mut Inventory, workloads: &[Arc<Workload>]) -> Vec<String> {
        inventory.take_in(workloads.into()).into_iter().map(|owner| owner.name).collect()
    }

    #[test]
    fn only_what_differs_is_told() {
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
        // The same answer may come again: it is counted each time.
        let nothing: Workloads = [].into();
        assert!(inventory.take_in(Arc::clone(&nothing)).is_empty());
        assert_eq!((inventory.take_in(nothing).len(), inventory.workloads().count()), (1, 0));
    }
}
