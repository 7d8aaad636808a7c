//! Nodes that come, change and go, and what is seen on the machines behind them.

use std::collections::BTreeMap;

use staffetta_driver::DriverError;
use staffetta_driver::virtual_node::{PodRequest, Progress};

use super::*;
use crate::back_end::Reply;
use crate::workload::{ContainerSight, ContainerState};

fn workload(uid: &str, running: bool) -> Arc<Workload> {
    let state = if running {
        ContainerState::Running { since: None }
    } else {
        ContainerState::Waiting { reason: "ContainerCreating".into(), message: String::new() }
    };
    let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
    let containers = vec![ContainerSight { name: "app".into(), id: "id".into(), state }];
    Arc::new(Workload { owner, ours: true, containers, ip: None })
}

fn look(seen: &mut HashMap<Uid, Seen>, workloads: &[Arc<Workload>]) -> Vec<String> {
    let mut due = Vec::new();
    changes(seen, &workloads.into(), &mut due);
    due.into_iter().map(|owner| owner.name).collect()
}

/// A way to nowhere.
struct Nowhere;

#[async_trait::async_trait]
impl NodeBackEnd for Nowhere {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        Ok(Reply::Later)
    }
    async fn inventory(&self) -> Result<Reply<Workloads>, DriverError> {
        Ok(Reply::Later)
    }
    async fn apply(&self, _: &PodRequest) -> Result<Progress, DriverError> {
        Ok(Progress::Done)
    }
    async fn remove(&self, _: &Owner) -> Result<Progress, DriverError> {
        Ok(Progress::Done)
    }
}

fn spec(place: &str, session: u64) -> NodeSpec {
    NodeSpec {
        name: "r1".into(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        max_pods: 1,
        kubelet: None,
        host_ip: None,
        place: place.into(),
        session,
        retired: false,
    }
}

#[test]
fn a_way_that_was_opened_to_what_the_machine_was_before_is_dropped() {
    let fleet = Fleet::new(Arc::default(), Policy::default());
    fleet.insert(spec("one", 1));
    let machine = fleet.get("r1").unwrap();
    let way: Arc<dyn NodeBackEnd> = Arc::new(Nowhere);
    // While the way is being opened, the description changes.
    fleet.insert(spec("one", 2));
    assert!(!machine.opened(1, &way) && machine.back_end().is_none());
    assert!(machine.opened(2, &way) && machine.back_end().is_some());
    fleet.insert(spec("one", 3));
    assert!(machine.back_end().is_none());
}

#[test]
fn nothing_is_known_of_a_machine_at_another_place_and_all_of_one_with_another_account() {
    let fleet = Fleet::new(Arc::default(), Policy::default());
    fleet.insert(spec("one", 1));
    let before = fleet.get("r1").unwrap();
    before.reached();
    before.told_inventory([workload("a", true)].into());
    fleet.insert(spec("one", 2));
    assert!(fleet.get("r1").is_some_and(|machine| machine.is_up() && machine.ours().len() == 1));
    fleet.insert(spec("two", 2));
    let after = fleet.get("r1").unwrap();
    assert!(!after.is_up() && after.ours().is_empty() && !Arc::ptr_eq(&before, &after));
}

#[test]
fn only_what_differs_is_told() {
    let mut seen = HashMap::new();
    assert_eq!(look(&mut seen, &[workload("a", false), workload("b", false)]), ["a", "b"]);
    assert_eq!(look(&mut seen, &[workload("a", false), workload("b", true)]), ["b"]);
    assert!(look(&mut seen, &[workload("a", false), workload("b", true)]).is_empty());
}

#[test]
fn a_pod_is_gone_only_after_two_good_reads_without_it() {
    let mut seen = HashMap::new();
    look(&mut seen, &[workload("a", true)]);
    assert!(look(&mut seen, &[]).is_empty() && seen.len() == 1);
    assert!(look(&mut seen, &[workload("a", true)]).is_empty(), "it was there all the time");
    assert!(look(&mut seen, &[]).is_empty());
    assert_eq!((look(&mut seen, &[]), seen.len()), (vec!["a".to_owned()], 0));
}
