//! Tests of adding, changing and removing nodes.

use staffetta_driver::DriverError;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};

use super::*;
use crate::back_end::{NodeBackEnd, PodRemoval, Reply};
use crate::inventory::tests::workload;
use crate::node::NodeHealth;

/// A back end without a machine: the result of each read comes later, and each step is done at once.
struct Nowhere;

#[async_trait::async_trait]
impl NodeBackEnd for Nowhere {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        Ok(Reply::Later)
    }
    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        Ok(Reply::Later)
    }
    async fn apply(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Done)
    }
    async fn remove(&self, _: &PodRemoval) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Done)
    }
}

fn spec(address: &str, session: u64) -> NodeSpec {
    NodeSpec { address: address.into(), session, ..NodeSpec::bare("r1") }
}

#[test]
fn a_way_that_was_opened_to_what_the_machine_was_before_is_dropped() {
    let node_store = NodeStore::new(Arc::default(), Policy::default());
    node_store.add_or_update(spec("one", 1));
    let machine = node_store.get("r1").unwrap();
    let way: Arc<dyn NodeBackEnd> = Arc::new(Nowhere);
    // While the way is being opened, the description changes.
    node_store.add_or_update(spec("one", 2));
    assert!(!machine.set_connection(1, &way) && machine.back_end().is_none());
    assert!(machine.set_connection(2, &way) && machine.back_end().is_some());
    node_store.add_or_update(spec("one", 3));
    assert!(machine.back_end().is_none());
}

#[test]
fn nothing_is_known_of_a_machine_at_another_place_and_all_of_one_with_another_account() {
    let node_store = NodeStore::new(Arc::default(), Policy::default());
    node_store.add_or_update(spec("one", 1));
    let before = node_store.get("r1").unwrap();
    before.read_succeeded();
    before.reported_inventory(&[workload("a", true)].into());
    node_store.add_or_update(spec("one", 2));
    assert!(
        node_store
            .get("r1")
            .is_some_and(|machine| machine.view().reach.is_up() && machine.marked_workloads().len() == 1)
    );
    node_store.add_or_update(spec("two", 2));
    let after = node_store.get("r1").unwrap();
    assert!(
        !after.view().reach.is_up() && after.marked_workloads().is_empty() && !Arc::ptr_eq(&before, &after)
    );
}
