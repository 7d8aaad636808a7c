//! Load balancers that are pending, stuck or broken.

use staffetta_driver::{DriverError, ProvisioningStatus, Reason};
use staffetta_handler::{Failure, Pending};
use staffetta_memory::Fault;

use super::*;
use crate::lbaasspec::LbaasSpecError;
use crate::step_error::StepContext;

pub(super) const DELAY: Duration = Duration::from_millis(200);

/// Creates a world in which changes take time, and a service with an endpoint.
async fn slow(spec: &LbaasServiceSpec) -> World {
    let world = World::new(MemoryOptions { load_balancer_delay_ms: 200, ..MemoryOptions::default() });
    world.want(spec);
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world
}

/// Creates the same world as `slow`, with a load balancer that is ready.
pub(super) async fn ready() -> World {
    let world = slow(&spec()).await;
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    world
}

/// Asserts that the error reports a pending load balancer and is not a failure.
pub(super) fn waits(error: &HandlerError) {
    let said = (error.pending().is_some(), error.transient(), error.reason());
    assert_eq!(said, (true, true, "LoadBalancerPending"), "{}", causes(&**error));
    assert!(error.retry_after().is_some_and(|after| after <= DELAY), "{:?}", error.retry_after());
}

#[tokio::test(start_paused = true)]
async fn the_state_is_published_at_once_and_the_address_when_the_load_balancer_is_active() {
    let world = slow(&public()).await;
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.calls(), ["ensure"]);
    assert!(world.shown().unwrap().public_ip.is_some() && world.finalizers().contains(&FINALIZER.to_owned()));
    assert_eq!(world.ingress(), [] as [IpAddr; 0], "it is not active yet");
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!(world.ingress().len(), 1);
    assert_eq!((world.calls(), world.api.patches().len()), (vec!["ensure"], 2));
}

#[tokio::test(start_paused = true)]
async fn the_time_for_retries_of_a_queued_load_balancer_has_not_begun() {
    let world = slow(&spec()).await;
    let after = Duration::from_secs(7);
    let queued = DriverError::new(Reason::Queued, "make a load balancer").after(after);
    world.balancers.faults().inject(LoadBalancerMethod::Ensure, 2, Fault::Fail(queued));
    for feed in [world.event().await, world.slice("s1", &["10.1.0.2"]).await] {
        let error = feed.unwrap_err();
        assert!(error.transient() && error.pending().is_some_and(|pending| pending.queued), "{error}");
        assert_eq!((error.reason(), error.retry_after()), ("Queued", Some(after)));
        assert_eq!(
            error.pending().unwrap().report_after,
            Duration::from_secs(300),
            "it is reported in the end"
        );
        assert!(causes(&*error).ends_with("make a load balancer: it is queued"), "{}", causes(&*error));
    }
    let pending = world.event().await.unwrap_err();
    waits(&pending);
    assert_eq!(pending.pending(), Some(Pending { report_after: Duration::MAX, queued: false }));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_of_a_pending_load_balancer_become_one_call() {
    let world = ready().await;
    world.services.hold_load_balancer(&world.tree().id, DELAY);
    let calls = world.calls().len();
    waits(&world.slice("s1", &["10.1.0.1", "10.1.0.200"]).await.unwrap_err());
    let refused = world.calls().len();
    for last in 1..=100 {
        let ip = format!("10.1.0.{last}");
        waits(&world.slice("s1", &[&*ip]).await.unwrap_err());
    }
    assert_eq!(world.calls().len(), refused, "no call is made that would be refused");
    tokio::time::advance(DELAY).await;
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.members(HTTP), ["10.1.0.100:8080"]);
    assert_eq!(world.calls()[calls..], ["set members", "set members"], "the first was refused");
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_active_load_balancer_is_made_at_once_by_one_call() {
    let world = ready().await;
    let (calls, begun) = (world.calls().len(), tokio::time::Instant::now());
    waits(&world.slice("s1", &["10.1.0.2"]).await.unwrap_err());
    assert_eq!((world.members(HTTP), begun.elapsed()), (vec!["10.1.0.2:8080".to_owned()], Duration::ZERO));
    assert_eq!(world.calls()[calls..], ["set members"]);
}

#[tokio::test(start_paused = true)]
async fn several_slices_of_one_attempt_become_one_call() {
    let world = ready().await;
    let calls = world.calls().len();
    for uid in ["s1", "s2", "s3"] {
        world.index(
            &Event::Modified(slice(uid, &[&*format!("10.1.0.{}", uid.len() + 5), "10.1.0.9"])).erase(),
        );
    }
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.calls()[calls..], ["set members"]);
}

#[tokio::test(start_paused = true)]
async fn several_changes_are_made_one_after_the_other() {
    let world = ready().await;
    let calls = world.calls().len();
    world.want(&LbaasServiceSpec { ports: vec![port("http", 81), port("http", 82)], ..spec() });
    for _ in 0..3 {
        waits(&world.event().await.unwrap_err());
        tokio::time::advance(DELAY).await;
    }
    world.event().await.unwrap();
    assert_eq!(world.calls()[calls..], ["release listener", "ensure listener", "ensure listener"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_until_it_may_release() {
    let world = slow(&spec()).await;
    waits(&world.event().await.unwrap_err());
    world.delete();
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.calls(), ["ensure"], "it would be refused");
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_waits_too_and_creates_nothing_twice() {
    let mut world = slow(&public()).await;
    waits(&world.event().await.unwrap_err());
    world.restart().await;
    world.feed(Event::Added(slice("s1", &["10.1.0.1"]))).await.unwrap();
    waits(&world.feed(Event::Added(world.api.object())).await.unwrap_err());
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!((world.calls(), world.ingress().len()), (vec!["ensure", "list"], 1));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_breaks_during_its_creation_is_replaced_at_once_and_reported() {
    let world = slow(&spec()).await;
    world.services.fail_next_load_balancers(1);
    waits(&world.event().await.unwrap_err());
    let broken = world.tree().id;
    tokio::time::advance(DELAY).await;
    waits(&world.event().await.unwrap_err());
    assert_ne!(world.tree().id, broken);
    assert_eq!(world.recorded.reasons(), ["LoadBalancerReplaced"]);
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure", "release", "ensure"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_breaks_repeatedly_is_replaced_once_per_attempt() {
    let world = slow(&spec()).await;
    world.services.fail_next_load_balancers(u32::MAX);
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    waits(&world.event().await.unwrap_err());
    for attempt in 2..4 {
        tokio::time::advance(DELAY).await;
        let error = world.event().await.unwrap_err();
        assert_eq!(
            (error.reason(), error.transient(), error.pending().is_some()),
            ("LoadBalancerBroken", false, false)
        );
        assert!(error.to_string().contains(&format!("{attempt} consecutive creations")), "{error}");
        assert_eq!(world.tree().status, ProvisioningStatus::Error);
        // The next attempt, after the back-off of permanent failures.
        waits(&world.event().await.unwrap_err());
    }
    world.services.fail_next_load_balancers(0);
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap_err();
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!(world.services.load_balancers().len(), 1);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_released_load_balancer_leaves_no_count_of_failures() {
    let world = slow(&spec()).await;
    world.services.fail_next_load_balancers(1);
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    waits(&world.event().await.unwrap_err());
    world.want_nothing();
    tokio::time::advance(DELAY).await;
    world.services.remove_load_balancer(&world.tree().id);
    world.event().await.unwrap();
    world.want(&spec());
    world.services.fail_next_load_balancers(1);
    waits(&world.event().await.unwrap_err());
    tokio::time::advance(DELAY).await;
    waits(&world.event().await.unwrap_err());
}

#[test]
fn an_error_that_awaits_another_handler_is_pending_whichever_step_it_failed() {
    let awaited = || Err::<(), _>(DriverError::new(Reason::Awaited, "ask")).step("ask").unwrap_err();
    for error in [
        LbError::Step(awaited()),
        LbError::PublicIp(awaited()),
        LbError::Spec(LbaasSpecError::Step(awaited())),
    ] {
        assert_eq!(error.pending(), Some(Pending::default()), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_load_balancer_is_awaited_and_then_gets_the_latest_state() {
    let world = ready().await;
    let hour = Duration::from_secs(3600);
    world.services.hold_load_balancer(&world.tree().id, hour);
    let stuck = world.slice("s1", &["10.1.0.2"]).await.unwrap_err();
    assert!(stuck.pending().is_some() && stuck.reason() == "LoadBalancerPending", "{stuck}");
    assert!(causes(&*stuck).contains("PENDING_UPDATE"), "{}", causes(&*stuck));
    tokio::time::advance(hour).await;
    waits(&world.slice("s1", &["10.1.0.3"]).await.unwrap_err());
    assert_eq!(world.members(HTTP), ["10.1.0.3:8080"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_removed_while_it_is_awaited_is_created_again() {
    let world = slow(&spec()).await;
    waits(&world.event().await.unwrap_err());
    world.services.remove_load_balancer(&world.tree().id);
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.calls(), ["ensure", "list", "ensure"]);
    tokio::time::advance(DELAY).await;
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_status_check_is_a_failure_like_any_other() {
    let world = slow(&spec()).await;
    let outage = Fault::Fail(DriverError::new(Reason::Unavailable, "look"));
    world.balancers.faults().inject(LoadBalancerMethod::Progress, 1, outage);
    let error = world.event().await.unwrap_err();
    assert!(error.transient() && error.pending().is_none(), "{error}");
    assert!(world.shown().is_some(), "the state is published");
}
