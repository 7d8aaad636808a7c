use staffetta_driver::{
    DriverError, ListenerDriver, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress, Owned, Reason,
};
use staffetta_memory::{Fault, PublicIpMethod};

use super::*;

fn error(reason: Reason) -> DriverError {
    DriverError::new(reason, "ask")
}

/// The methods that change a load balancer.
pub(super) const METHODS: [LoadBalancerMethod; 4] = [
    LoadBalancerMethod::Ensure,
    LoadBalancerMethod::EnsureListener,
    LoadBalancerMethod::ReleaseListener,
    LoadBalancerMethod::SetMembers,
];

async fn prepared() -> World {
    let world = world();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world
}

/// Creates a world whose next event makes one call of that method, which completes `spec`.
pub(super) async fn about_to(method: LoadBalancerMethod, spec: &LbaasServiceSpec) -> World {
    let world = prepared().await;
    let other = |port: u16| Versioned(LbaasPortSpec { port, ..spec.ports[0].0.clone() });
    let before = match method {
        LoadBalancerMethod::EnsureListener => vec![],
        LoadBalancerMethod::ReleaseListener => vec![spec.ports[0].clone(), other(8000)],
        _ => spec.ports.clone(),
    };
    world.want(&LbaasServiceSpec { ports: before, ..spec.clone() });
    if method != LoadBalancerMethod::Ensure {
        world.event().await.unwrap();
        world.event().await.unwrap();
    }
    if method == LoadBalancerMethod::SetMembers {
        world.slice("s1", &[]).await.unwrap();
        world.event().await.unwrap();
        world.index(&Event::Modified(slice("s1", &["10.1.0.1"])).erase());
    }
    world.want(spec);
    world
}

#[tokio::test]
async fn a_failing_port_does_not_block_the_members_of_others() {
    let world = about_to(LoadBalancerMethod::ReleaseListener, &spec()).await;
    world.want(&LbaasServiceSpec { ports: vec![spec().ports[0].clone(), port("https", 443)], ..spec() });
    for method in [LoadBalancerMethod::ReleaseListener, LoadBalancerMethod::EnsureListener] {
        world.balancers.faults().inject(method, 1, Fault::Fail(error(Reason::Quota)));
    }
    world.index(&Event::Modified(slice("s1", &["10.1.0.7"])).erase());
    assert!(world.event().await.unwrap_err().transient());
    assert_eq!(world.members(HTTP), ["10.1.0.7:8080"]);
}

#[tokio::test]
async fn a_failing_listener_does_not_block_others() {
    let world = about_to(LoadBalancerMethod::SetMembers, &spec()).await;
    let ports = vec![spec().ports[0].clone(), port("https", 443), port("admin", 8443)];
    world.want(&LbaasServiceSpec { ports, ..spec() });
    world.balancers.faults().inject(
        LoadBalancerMethod::EnsureListener,
        1,
        Fault::Fail(error(Reason::Refused)),
    );
    let refused = world.event().await.unwrap_err();
    assert!(!refused.transient(), "{refused}");
    let made: Vec<_> = world.tree().listeners.iter().map(|listener| listener.at.port).collect();
    assert_eq!(made, [80, 8443]);
    world.event().await.unwrap();
    assert_eq!(world.tree().listeners.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_breaks_while_its_address_is_awaited_is_replaced() {
    let world = World::new(MemoryOptions::default());
    world.want(&public());
    world.services.fail_next_load_balancers(1);
    world.addresses.faults().inject(PublicIpMethod::Acquire, 3, Fault::Fail(error(Reason::NoAddress)));
    world.event().await.unwrap_err();
    let first = world.tree().id;
    tokio::time::advance(Duration::from_secs(1)).await;
    world.event().await.unwrap_err();
    assert_ne!(world.tree().id, first);
    assert_eq!(world.recorded.reasons(), ["LoadBalancerReplaced"]);
}

#[tokio::test]
async fn a_failed_step_is_repeated_and_those_before_it_are_not() {
    for method in METHODS {
        let world = about_to(method, &spec()).await;
        world.balancers.faults().inject(method, 1, Fault::Fail(error(Reason::Unavailable)));
        let calls = world.calls().len();
        assert!(world.event().await.unwrap_err().transient());
        world.event().await.unwrap();
        let made = world.calls()[calls..].to_vec();
        assert!(made.len() == 2 && made[0] == made[1] && made[0] != "list", "{method:?}: {made:?}");
        assert_eq!(world.members(HTTP), ["10.1.0.1:8080"]);
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    }
}

#[tokio::test]
async fn after_a_lost_answer_the_marks_are_read_first() {
    for method in METHODS {
        let world = about_to(method, &spec()).await;
        world.balancers.faults().inject(method, 1, Fault::DoneThenFail(error(Reason::Unavailable)));
        world.event().await.unwrap_err();
        let calls = world.calls().len();
        world.event().await.unwrap();
        assert_eq!(world.calls()[calls..], ["list"], "{method:?}: nothing is asked twice");
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
        world.event().await.unwrap();
        assert_eq!(world.calls()[calls..], ["list"], "{method:?}: the marks are read once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_driver_is_interrupted_and_its_resources_are_found_by_their_marks() {
    for fault in [Fault::Hang, Fault::DoneThenHang] {
        let world = prepared().await;
        world.balancers.faults().inject(LoadBalancerMethod::Ensure, 1, fault);
        let interrupted = tokio::time::timeout(Duration::from_secs(60), world.event()).await;
        assert!(interrupted.is_err());
        world.event().await.unwrap();
        assert_eq!(world.calls()[1], "list");
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    }
}

#[tokio::test]
async fn a_load_balancer_that_was_removed_outside_is_created_again() {
    let world = prepared().await;
    world.event().await.unwrap();
    world.event().await.unwrap();
    world.services.remove_load_balancer(&world.tree().id);
    world.slice("s1", &["10.1.0.2"]).await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn a_broken_load_balancer_is_replaced() {
    let world = prepared().await;
    world.event().await.unwrap();
    world.event().await.unwrap();
    let broken = world.tree().id;
    world.services.break_load_balancer(&broken);
    world.slice("s1", &["10.1.0.2"]).await.unwrap();
    assert_ne!(world.tree().id, broken);
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
}

#[tokio::test]
async fn a_permanently_refused_step_ends_the_reconciliation_and_the_state_is_published() {
    let world = about_to(LoadBalancerMethod::SetMembers, &spec()).await;
    let calls = world.calls().len();
    world.balancers.faults().inject(LoadBalancerMethod::SetMembers, 1, Fault::Fail(error(Reason::Refused)));
    assert!(!world.event().await.unwrap_err().transient());
    assert_eq!(world.calls()[calls..], ["set members", "list"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"], "the next event tries again");
}

#[tokio::test]
async fn a_failure_after_a_change_of_a_slice_is_reported_on_the_service() {
    let world = prepared().await;
    let refused = || Fault::Fail(error(Reason::Quota));
    world.balancers.faults().inject(LoadBalancerMethod::Ensure, 2, refused());
    let of_service = world.event().await.unwrap_err();
    let of_slice = world.slice("s2", &["10.1.0.2"]).await.unwrap_err();
    let service = of_slice.concerns().expect("the error names an object");
    assert_eq!((&*service.kind, &*service.api_version, &*service.name), ("Service", "v1", "web"));
    assert_eq!((of_slice.reason(), of_slice.transient()), ("QuotaExceeded", true));
    assert!(of_service.concerns().is_none());
    assert_eq!(causes(&*of_slice), causes(&*of_service));
}

#[tokio::test]
async fn without_resources_nothing_is_written() {
    let world = prepared().await;
    world.balancers.faults().inject(LoadBalancerMethod::Ensure, 1, Fault::Fail(error(Reason::Refused)));
    assert!(!world.event().await.unwrap_err().transient());
    assert!(world.api.patches().is_empty());
}

#[tokio::test]
async fn a_port_with_an_unsupported_protocol_does_not_block_the_others() {
    let world = prepared().await;
    world.services.disable_protocol(Protocol::Sctp);
    let sctp = Versioned(LbaasPortSpec { name: Some("sctp".into()), port: 80, protocol: Protocol::Sctp });
    world.want(&LbaasServiceSpec { ports: vec![port("http", 80), sctp], ..spec() });
    let error = world.event().await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("ProtocolUnsupported", false));
    assert_eq!(
        error.to_string(),
        "the external system does not support SCTP:80; the service works without these ports"
    );
    assert_eq!(world.calls(), ["ensure", "ensure listener", "ensure listener"]);
    assert_eq!((world.tree().listeners.len(), world.members(HTTP).len()), (1, 1));
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn a_failure_ends_when_the_quota_is_raised() {
    let options =
        MemoryOptions { load_balancer_quota: Some(0), load_balancer_delay_ms: 0, ..MemoryOptions::default() };
    let world = World::new(options);
    world.want(&spec());
    assert!(world.event().await.unwrap_err().transient());
    world.services.set_load_balancer_quota(None);
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn an_address_in_use_is_a_failure_until_it_is_free() {
    let world = prepared().await;
    let other = Owner { namespace: "default".into(), name: "other".into(), uid: "other".into() };
    let theirs = world.balancers.ensure_load_balancer(&other, &bare([10, 0, 0, 1].into())).await.unwrap();
    let taken = world.event().await.unwrap_err();
    assert_eq!(
        (taken.reason(), taken.transient(), taken.pending().is_some()),
        ("DriverConflict", true, false)
    );
    assert!(causes(&*taken).contains("10.0.0.1 is in use"), "{}", causes(&*taken));
    world.balancers.release_load_balancer(&other, &theirs.id).await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn an_outage_is_reported_for_every_call() {
    for method in METHODS {
        let world = about_to(method, &spec()).await;
        world.balancers.faults().inject(method, 1, Fault::Fail(error(Reason::Unavailable)));
        let away = world.event().await.unwrap_err();
        let said = (away.reason(), away.transient(), away.pending().is_some());
        assert_eq!(said, ("DriverUnavailable", true, false), "{method:?}");
        assert!(causes(&*away).contains("ask: the external system is unavailable"), "{}", causes(&*away));
    }
}

#[tokio::test]
async fn a_port_of_an_interrupted_creation_is_not_a_broken_load_balancer() {
    let world = prepared().await;
    let owner = Owner::of(&world.api.object().metadata);
    let left = LoadBalancer {
        id: "port".into(),
        vip: [10, 0, 0, 1].into(),
        ..testing::load_balancer("default/web", "10.0.0.1")
    };
    world.services.insert_load_balancer(left.clone());
    let adopting = LoadBalancerSpec { adopt: Some(left.id.clone()), ..bare(left.vip) };
    world.balancers.ensure_load_balancer(&owner, &adopting).await.unwrap();
    world.services.break_load_balancer(&left.id);
    world.garbage_collector().recover().await.unwrap();
    let calls = world.calls().len();
    world.event().await.unwrap_err();
    assert_eq!(world.recorded.reasons(), [""; 0], "nothing was replaced");
    let calls = world.calls().split_off(calls);
    assert!(!calls.is_empty() && calls.iter().all(|call| *call == "ensure"), "{calls:?}");
}

/// Returns the addresses of `count` endpoints.
fn crowd(count: u16) -> Vec<String> {
    (0..count).map(|number| format!("10.1.{}.{}", number / 250, number % 250 + 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn with_very_many_members_the_annotation_is_incomplete_and_the_marks_are_read() {
    let world = prepared().await;
    let ips = crowd(1000);
    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
    world.index(&Event::Modified(slice("s1", &ips)).erase());
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP).len(), 1000);
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
    let shown = world.shown().unwrap().load_balancer.unwrap();
    assert_eq!((&shown.id, shown.listeners.len()), (&world.tree().id, 1));
    assert_eq!(shown.listeners[0].pool.as_ref().unwrap().members, []);
    let (calls, patches) = (world.calls().len(), world.api.patches().len());
    world.event().await.unwrap();
    assert_eq!((&world.calls()[calls..], world.api.patches().len()), (&["list"][..], patches));
    world.slice("s1", &ips[1..]).await.unwrap();
    assert_eq!(world.members(HTTP).len(), 999);
    world.slice("s1", &ips[..2]).await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()), "there is room again");
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn after_a_failed_write_only_the_write_is_repeated() {
    for answer in [Answer::Refuse(503, vec![]), Answer::Lost] {
        let world = prepared().await;
        world.api.answer(answer);
        assert!(world.event().await.unwrap_err().transient());
        let calls = world.calls().len();
        world.event().await.unwrap();
        assert_eq!(world.calls().len(), calls);
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    }
}

#[tokio::test]
async fn a_permanently_refused_annotation_is_an_error_and_the_load_balancer_stays() {
    let world = prepared().await;
    world.api.leave_room(STATE_ANNOTATION.len() + 100);
    for _ in 0..2 {
        assert!(!world.event().await.unwrap_err().transient());
        assert_eq!((world.members(HTTP).len(), world.calls().len(), world.shown()), (1, 1, None));
    }
    world.deleted().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn a_refused_annotation_is_written_once_there_is_room() {
    let world = prepared().await;
    world.api.leave_room(100);
    world.event().await.unwrap_err();
    world.api.leave_room(10_000);
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert_eq!(world.calls(), ["ensure"]);
}

#[tokio::test]
async fn after_a_lost_answer_no_second_public_address_is_acquired() {
    for method in [PublicIpMethod::Acquire, PublicIpMethod::Associate] {
        let world = prepared().await;
        world.want(&public());
        world.addresses.faults().inject(method, 1, Fault::DoneThenFail(error(Reason::Unavailable)));
        world.event().await.unwrap_err();
        world.event().await.unwrap();
        world.event().await.unwrap();
        assert_eq!(world.services.public_ips().len(), 1);
        let acquired = |call: &PublicIpCall| matches!(call, PublicIpCall::Acquire(_));
        assert_eq!(world.addresses.calls().into_iter().filter(acquired).count(), 1);
        assert_eq!(world.ingress().len(), 1);
    }
}

/// A driver that creates load balancers with another address.
struct Liar(Arc<MemoryLoadBalancerDriver>);

#[async_trait::async_trait]
impl LoadBalancerDriver for Liar {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.0.load_balancers(owner).await
    }
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let made = self.0.ensure_load_balancer(owner, spec).await?;
        Ok(LoadBalancer { vip: [10, 9, 9, 9].into(), ..made })
    }
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        self.0.release_load_balancer(owner, id).await
    }
    async fn progress(&self, tree: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        self.0.progress(tree).await
    }
}

#[async_trait::async_trait]
impl ListenerDriver for Liar {
    async fn change_listener(
        &self,
        tree: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        self.0.change_listener(tree, change).await
    }
}

#[tokio::test]
async fn an_inconsistent_driver_is_reported_and_not_called_forever() {
    let mut world = prepared().await;
    let load_balancer = Arc::new(Liar(Arc::clone(&world.balancers)));
    world.replace(LbDrivers { load_balancer, ..world.drivers() }, true);
    let error = world.event().await.unwrap_err();
    assert!(!error.transient() && error.to_string().contains("still differ from the requests"), "{error}");
}
