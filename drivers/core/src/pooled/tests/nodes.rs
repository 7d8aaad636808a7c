use super::*;
use crate::nodes::NodeFacts;

const LOOK: Duration = Duration::from_secs(60);

async fn two_nodes() -> World {
    let world = World::new(PoolPolicy { min: 2, batch: 2, ..POLICY }).await;
    for node in ["n1", "n2"] {
        world.pool.node(node, Some(&NodeFacts::default()));
    }
    world
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_a_node_that_is_gone_is_destroyed_after_the_second_look() {
    let world = two_nodes().await;
    let used = world.get("a").await;
    world.pool.node("n1", None);
    pass(LOOK).await;
    assert!(world.ports() > 1, "one look may be wrong");
    pass(LOOK).await;
    assert_eq!(world.ports(), 1, "a pod still shows it");
    assert!(world.ask("b").await.is_err());
    world.release("a", &used).await;
    pass(POLICY.cool_down).await;
    assert_eq!(world.ports(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_between_two_looks_loses_nothing_and_one_later_starts_anew() {
    let world = two_nodes().await;
    world.get("a").await;
    let ports = world.ports();
    for _ in 0..4 {
        world.pool.node("n1", None);
        pass(LOOK).await;
        world.pool.node("n1", Some(&NodeFacts::default()));
        pass(LOOK).await;
    }
    assert_eq!(world.ports(), ports);
    world.pool.node("n1", None);
    pass(LOOK).await;
    pass(LOOK).await;
    assert_eq!(world.ports(), 1);
    world.pool.node("n1", Some(&NodeFacts::default()));
    assert!(world.ask("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn while_nobody_tells_of_nodes_none_is_gone() {
    let world = World::new(PoolPolicy { min: 2, batch: 2, ..POLICY }).await;
    world.get("a").await;
    let ports = world.ports();
    pass(LOOK * 5).await;
    assert_eq!(world.ports(), ports);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_to_be_deleted_is_left_and_taken_up_again_when_somebody_asks() {
    let world = two_nodes().await;
    let vif = world.get("a").await;
    let network = vif.network.id.clone();
    assert_eq!(world.pool.vacate(&network).await.unwrap_err().reason(), Reason::Conflict);
    settle().await;
    assert_eq!(world.ports(), 1);
    world.release("a", &vif).await;
    pass(POLICY.cool_down).await;
    assert_eq!(world.ports(), 0);
    world.pool.vacate(&network).await.unwrap();
    assert!(world.ask("b").await.is_ok());
}
