use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, VifMethod};

use super::*;

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "make a port")
}

fn full() -> World {
    let cidr: ipnet::IpNet = "10.0.0.0/29".parse().unwrap();
    let options =
        MemoryOptions { pod_subnets: vec![cidr], addresses_per_subnet: Some(0), ..MemoryOptions::default() };
    World::new(options)
}

#[tokio::test(start_paused = true)]
async fn a_full_subnet_is_a_transient_failure() {
    let world = full();
    let error = world.event().await.unwrap_err();
    assert!(error.transient());
    assert!(staffetta_handler::causes(&error).contains("10.0.0.0/29"));
    world.network.set_address_limit("10.0.0.0/29".parse().unwrap(), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.event().await.unwrap();
    assert_eq!(world.ports().len(), 1);
    // After a failure without effects the marks are not read.
    assert_eq!(world.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_a_subnet_is_a_configuration_error() {
    let world = World::new(MemoryOptions { pod_subnets: vec![], ..MemoryOptions::default() });
    let error = world.event().await.unwrap_err();
    assert!(matches!(error, VifError::NoSubnet) && !error.transient());
    assert_eq!(world.vifs.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_vif_whose_creation_was_not_confirmed_is_found_by_its_mark() {
    let world = world();
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenFail(outage()));
    assert!(world.event().await.unwrap_err().transient());
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
    assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_an_interrupted_call_is_read_from_the_marks() {
    for (fault, requests) in [(Fault::DoneThenHang, 1), (Fault::Hang, 2)] {
        let world = world();
        world.vifs.faults().inject(VifMethod::Request, 1, fault);
        let cut = tokio::time::timeout(Duration::from_secs(60), world.event()).await;
        assert!(cut.is_err());
        world.event().await.unwrap();
        assert_eq!((world.requests(), world.ports().len(), world.lists()), (requests, 1, 1));
        assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_started_during_a_hanging_request_gets_no_vif() {
    let world = world();
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Hang);
    let cut = tokio::time::timeout(Duration::from_secs(60), world.event()).await;
    assert!(cut.is_err());
    world.phase("Running");
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.lists(), world.ports(), world.patches()), (1, 1, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_list_of_marks_is_read_again() {
    let world = world();
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenFail(outage()));
    world.vifs.faults().inject(VifMethod::List, 1, Fault::Fail(outage()));
    world.event().await.unwrap_err();
    assert!(matches!(world.event().await.unwrap_err(), VifError::Step(_)));
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_meanwhile_is_annotated_by_the_newer_event_with_the_same_vif() {
    let world = world();
    let old = world.api.object();
    world.api.change(|pod| pod["metadata"]["labels"] = json!({ "app": "web" }));
    assert!(world.feed(Event::Added(old)).await.unwrap_err().transient(), "the newer event supersedes it");
    assert!(world.shown().is_none());
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len(), world.patches().len()), (1, 1, 2));
    assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_before_it_is_written_releases_its_vif() {
    for (code, fields) in [(404, vec![]), (422, vec!["metadata.finalizers"]), (422, vec!["metadata.uid"])] {
        let world = world();
        world.api.answer(Answer::Refuse(code, fields));
        world.event().await.unwrap();
        assert!(world.ports().is_empty());
        assert_eq!(world.handler.records.get(&UID.into()), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reported_and_its_vif_is_kept_for_the_next_attempt() {
    for (code, fields) in [(403, vec![]), (413, vec![]), (422, vec!["metadata.annotations"])] {
        let world = world();
        for _ in 0..3 {
            world.api.answer(Answer::Refuse(code, fields.clone()));
            let error = world.event().await.unwrap_err();
            assert!(error.reason() == "WriteRefused" && !error.transient());
            assert!(staffetta_handler::causes(&error).contains("default/web"));
        }
        world.event().await.unwrap();
        assert_eq!((world.requests(), world.releases(), world.ports().len()), (1, 0, 1));
        assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_whose_write_was_refused_is_released_with_its_pod() {
    let world = world();
    world.api.answer(Answer::Refuse(403, vec![]));
    world.event().await.unwrap_err();
    assert_eq!(world.ports().len(), 1);
    world.delete(0);
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    assert!(world.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_transient_write_error_is_retried_with_the_same_vif() {
    for answer in [Answer::Refuse(503, vec![]), Answer::Refuse(401, vec![]), Answer::Broken] {
        let world = world();
        world.api.answer(answer);
        assert!(world.event().await.unwrap_err().transient());
        world.event().await.unwrap();
        assert_eq!((world.requests(), world.releases(), world.ports().len()), (1, 0, 1));
        assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_recognised_by_its_event() {
    let world = world();
    let event = Event::Added(world.api.object());
    world.api.answer(Answer::Lost);
    assert!(world.feed(event.clone()).await.unwrap_err().transient());
    assert!(world.feed(event).await.unwrap_err().transient(), "it has changed since");
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert!(world.shown().unwrap().default_vif.active);
    assert_eq!((world.requests(), world.releases(), world.ports().len()), (1, 0, 1));
}

/// Returns a pod with an inactive VIF that another program deleted, and the id of that VIF.
async fn vanished() -> (World, VifId) {
    let world = world();
    world.event().await.unwrap();
    let id = world.ports().pop().unwrap();
    world.network.remove_port(&id);
    (world, id)
}

#[tokio::test(start_paused = true)]
async fn a_missing_port_of_a_running_pod_is_an_error_that_names_it() {
    let addressed = |world: &World| world.api.change(|pod| pod["status"]["podIP"] = json!("10.10.0.2"));
    for uses in [&addressed as &dyn Fn(&World), &|world: &World| world.phase("Running")] {
        let (world, id) = vanished().await;
        uses(&world);
        let error = world.event().await.unwrap_err();
        assert!(!error.transient());
        assert!(staffetta_handler::causes(&error).contains(id.as_str()));
        assert_eq!((world.ports(), world.requests()), (vec![], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_port_vanished_before_use_gets_another_one() {
    for mishap in [None, Some(Answer::Overtaken), Some(Answer::Lost), Some(Answer::Refuse(503, vec![]))] {
        let (world, id) = vanished().await;
        let lost = mishap.is_some();
        if let Some(answer) = mishap {
            world.api.answer(answer);
        }
        assert_eq!(world.event().await.is_err(), lost);
        for _ in 0..3 {
            tokio::time::advance(world.activation_delay()).await;
            drop(world.event().await);
        }
        let shown = world.shown().unwrap().default_vif;
        assert!(shown.active && shown.id != id, "{shown:?}");
        assert_eq!((world.ports(), world.requests()), (vec![shown.id], 2), "none is created twice");
        assert_eq!(world.handler.records.get(&UID.into()), None);
        world.terminate(0).await.unwrap();
        world.assert_released();
    }
}

#[tokio::test(start_paused = true)]
async fn if_one_of_several_vifs_vanished_the_others_are_released() {
    let (world, _) = vanished().await;
    let mut state = world.shown().unwrap();
    let mut second = world.handler.drivers.pool.request_vif(&request(&world)).await.unwrap();
    second.active = true;
    state.additional_vifs.insert("eth1".into(), second.clone());
    world.annotate(&state.write());
    world.event().await.unwrap();
    assert!(world.network.port(&second.id).is_some(), "it may still be published");
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert!(world.network.port(&second.id).is_none());
    assert_eq!(world.ports(), [world.shown().unwrap().default_vif.id]);
}

/// Returns the request that the handler sends to the driver.
fn request(world: &World) -> VifRequest {
    VifRequest {
        owner: Owner::of(&world.api.object().metadata),
        node_name: "node-1".into(),
        host_ip: None,
        project: world.network.options().project.clone(),
        subnets: vec![world.network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: Vec::new(),
    }
}

/// A driver of subnets whose namespace has no network yet.
struct NoNetworkYet;

#[async_trait::async_trait]
impl PodSubnetsDriver for NoNetworkYet {
    async fn subnets(
        &self,
        _: &Pod,
        _: &staffetta_driver::ProjectId,
    ) -> Result<Vec<staffetta_driver::Subnet>, DriverError> {
        Err(DriverError::new(Reason::Awaited, "find the subnet of a namespace"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_network_of_a_namespace_is_no_failure() {
    let mut world = world();
    world.handler.drivers.subnets = Arc::new(NoNetworkYet);
    let error = world.event().await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("NamespaceNetworkPending", true));
    assert!(error.pending().is_some());
}
