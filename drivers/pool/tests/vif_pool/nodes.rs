use super::*;

const LOOK: Duration = Duration::from_secs(60);

async fn two_nodes() -> World {
    let world = World::new(VifPoolPolicy { min: 2, batch: 2, ..POLICY }).await;
    for node in ["n1", "n2"] {
        world.pool.node_changed(node, Some(&NodeInfo::default()));
    }
    world
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_a_node_that_is_gone_is_destroyed_after_the_second_look() {
    let world = two_nodes().await;
    let used = world.get("a").await;
    world.pool.node_changed("n1", None);
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
        world.pool.node_changed("n1", None);
        pass(LOOK).await;
        world.pool.node_changed("n1", Some(&NodeInfo::default()));
        pass(LOOK).await;
    }
    assert_eq!(world.ports(), ports);
    world.pool.node_changed("n1", None);
    pass(LOOK).await;
    pass(LOOK).await;
    assert_eq!(world.ports(), 1);
    world.pool.node_changed("n1", Some(&NodeInfo::default()));
    assert!(world.ask("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn while_nobody_tells_of_nodes_none_is_gone() {
    let world = World::new(VifPoolPolicy { min: 2, batch: 2, ..POLICY }).await;
    world.get("a").await;
    let ports = world.ports();
    pass(LOOK * 5).await;
    assert_eq!(world.ports(), ports);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_to_be_deleted_is_left_and_taken_up_again_when_somebody_asks() {
    let world = two_nodes().await;
    let (vif, other) = (world.get("a").await, world.get("b").await);
    let network = vif.network.id.clone();
    world.release("b", &other).await;
    let error = world.pool.drain_network(&network).await.unwrap_err();
    assert_eq!((error.reason(), world.ports()), (Reason::Conflict, 1), "{error}");
    world.release("a", &vif).await;
    world.pool.drain_network(&network).await.unwrap();
    assert_eq!(world.ports(), 0, "nothing cools down for a pod that never comes");
    pass(LOOK * 5).await;
    assert_eq!(world.ports(), 0, "nothing is made there any more");
    assert!(world.ask("c").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_just_being_made_in_a_network_that_is_to_be_deleted_goes_as_soon_as_it_is_there() {
    let world = two_nodes().await;
    let a = world.get("a").await;
    let (network, slow) = (a.network.id.clone(), Duration::from_secs(3));
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Delay(slow));
    let b = world.get("b").await;
    assert!(world.metrics().creating > 0);
    world.release("a", &a).await;
    world.release("b", &b).await;
    world.pool.drain_network(&"other".into()).await.unwrap();
    assert_eq!(world.pool.drain_network(&network).await.unwrap_err().reason(), Reason::Conflict);
    pass(slow).await;
    assert_eq!((world.ports(), world.metrics().creating), (0, 0));
    world.pool.drain_network(&network).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn before_it_is_known_what_pods_use_no_network_is_given_up() {
    let world = World::with(MemoryOptions::default(), POLICY);
    let network = "network".into();
    assert_eq!(world.pool.drain_network(&network).await.unwrap_err().reason(), Reason::Unavailable);
    world.pool.resync().await.unwrap();
    assert_eq!(world.pool.drain_network(&network).await.unwrap_err().reason(), Reason::Unavailable);
    world.pool.start();
    world.pool.drain_network(&network).await.unwrap();
}
