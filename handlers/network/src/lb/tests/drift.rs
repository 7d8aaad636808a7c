//! Drift detection.

use staffetta_driver::ProvisioningStatus;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::Fault;

use super::*;

const MOMENT: Duration = Duration::from_millis(1);

async fn balanced(spec: &LbaasServiceSpec) -> World {
    let world = world();
    world.want(spec);
    world.slice("s1", &["10.1.0.1", "10.1.0.2"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
}

impl World {
    /// Waits for the next comparison and returns its triggers.
    async fn compared(&self) -> Vec<AnyEvent> {
        Self::triggers_of(&*self.handler.sources[0], self.options.check_interval().unwrap() + MOMENT).await
    }

    /// Handles the triggers of the next comparison and returns their number.
    async fn repaired(&self) -> usize {
        let triggers = self.compared().await;
        for trigger in &triggers {
            assert!(self.handler.wants(trigger).is_taken());
            self.handler.handle(&self.handler.resolve(trigger), &Context::detached()).await.unwrap();
        }
        triggers.len()
    }
}

#[tokio::test(start_paused = true)]
async fn without_drift_a_comparison_makes_two_lists_only() {
    let world = balanced(&public()).await;
    let (calls, addresses) = (world.calls().len(), world.addresses.calls().len());
    assert_eq!(world.repaired().await, 0);
    assert_eq!((&world.calls()[calls..], world.addresses.calls().len()), (&["list"][..], addresses + 1));
    assert_eq!(world.recorded.reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_change_from_outside_is_reverted_and_reported() {
    type Change = fn(&mut LoadBalancer);
    let changes: [Change; 7] = [
        |tree| tree.listeners.clear(),
        |tree| drop(tree.listeners[0].pool.as_mut().unwrap().members.pop()),
        |tree| tree.listeners[0].settings.client_timeout_ms = Some(1),
        |tree| tree.listeners[0].pool = None,
        |tree| tree.disabled = true,
        |tree| tree.listeners[0].settings.disabled = true,
        |tree| tree.listeners[0].pool.as_mut().unwrap().settings.disabled = true,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let world = balanced(&spec()).await;
        let before = world.tree();
        world.services.change_load_balancer(&before.id, change);
        assert_ne!(world.tree(), before);
        assert_eq!(world.repaired().await, 1, "{number}");
        assert_eq!(world.recorded.reasons(), ["LoadBalancerDrifted"]);
        assert_eq!(world.members(HTTP), ["10.1.0.1:8080", "10.1.0.2:8080"], "{number}");
        assert_eq!(world.tree().listeners[0].settings, before.listeners[0].settings);
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()), "{number}");
        world.event().await.unwrap();
        assert_eq!(world.repaired().await, 0, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_or_broken_load_balancer_is_created_again() {
    for broken in [true, false] {
        let world = balanced(&public()).await;
        let before = world.tree();
        if broken {
            world.services.break_load_balancer(&before.id);
        } else {
            world.services.remove_load_balancer(&before.id);
        }
        assert_eq!(world.repaired().await, 1);
        assert_ne!(world.tree().id, before.id);
        assert_eq!(world.tree().status, ProvisioningStatus::Active);
        assert_eq!(
            world.services.public_ips()[0].1.port,
            Some(world.tree().port),
            "its address is associated with it"
        );
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
        let error = world.recorded.reasons();
        let expected: &[_] =
            if broken { &["LoadBalancerDrifted", "LoadBalancerReplaced"] } else { &["LoadBalancerDrifted"] };
        assert_eq!(error, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_being_reconciled_has_no_drift() {
    let world = balanced(&spec()).await;
    let refused = Fault::Fail(DriverError::new(Reason::Unavailable, "ask"));
    world.balancers.faults().inject(LoadBalancerMethod::SetMembers, 1, refused);
    world.services.change_load_balancer(&world.tree().id, |tree| tree.listeners.clear());
    world.slice("s1", &["10.1.0.3"]).await.unwrap_err();
    assert_eq!(world.compared().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_just_written_has_no_drift() {
    let world = balanced(&spec()).await;
    // The event of this write is still to come, so the list is newer than the index.
    let change = async {
        tokio::time::sleep(world.options.check_interval().unwrap().saturating_sub(MOMENT)).await;
        world.slice("s1", &["10.1.0.3"]).await.unwrap();
        world.calls().len()
    };
    let (triggered, calls) = tokio::join!(world.repaired(), change);
    assert_eq!(triggered, 0, "the list is compared with the last write");
    assert_eq!(world.calls()[calls..], ["list"], "the marks are not read again");
    assert_eq!(world.recorded.reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_user_provided_address_that_was_moved_is_associated_again_also_after_a_restart() {
    for restarted in [false, true] {
        let (mut world, ip) = (world(), IpAddr::from([192, 0, 2, 1]));
        let users = world.services.insert_public_ip(ip);
        world.want(&LbaasServiceSpec { lb_ip: Some(ip), ..public() });
        world.event().await.unwrap();
        world.event().await.unwrap();
        assert_eq!((world.ingress(), world.compared().await.len()), (vec![ip], 0), "it carries no mark");
        let port = world.tree().port;
        let leads_to = |world: &World| world.services.public_ip(&users).unwrap().resource.port;
        assert_eq!(leads_to(&world), Some(port.clone()));
        let shown = world.shown().unwrap().public_ip.unwrap();
        world.drivers().public_ip.disassociate(&shown, &port).await.unwrap();
        if restarted {
            world.restart().await;
            world.feed(Event::Added(world.api.object())).await.unwrap();
        } else {
            assert_eq!(world.repaired().await, 1);
            assert_eq!(world.recorded.reasons(), ["LoadBalancerDrifted"]);
        }
        assert_eq!(leads_to(&world), Some(port), "restarted: {restarted}");
        world.event().await.unwrap();
        assert_eq!(world.repaired().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_fails_the_comparison_only() {
    let world = balanced(&spec()).await;
    let outage = Fault::Fail(DriverError::new(Reason::Unavailable, "list"));
    world.balancers.faults().inject(LoadBalancerMethod::List, 1, outage);
    let failed = world.handler.sources[0]
        .run(TriggerSender::new(|_| panic!("there is no trigger")))
        .await
        .unwrap_err();
    assert!(failed.transient());
    world.services.remove_load_balancer(&world.tree().id);
    assert_eq!(world.repaired().await, 1);
}

#[tokio::test]
async fn drift_detection_can_be_disabled() {
    let mut world = world();
    world.options.check_interval_s = 0;
    world.replace(world.drivers(), true);
    assert_eq!(world.handler.sources.len(), 1, "the source of endpoints that move is left");
}

#[tokio::test(start_paused = true)]
async fn drift_that_takes_several_changes_is_repaired_by_later_attempts() {
    let world =
        balanced(&LbaasServiceSpec { ports: vec![port("http", 80), port("http", 81)], ..spec() }).await;
    world.services.change_load_balancer(&world.tree().id, |tree| tree.listeners.clear());
    let triggers = world.compared().await;
    let busy = Fault::Fail(DriverError::new(Reason::Unavailable, "make a listener"));
    world.balancers.faults().inject(LoadBalancerMethod::EnsureListener, 1, busy);
    world.handler.handle(&world.handler.resolve(&triggers[0]), &Context::detached()).await.unwrap_err();
    world.handler.handle(&world.handler.resolve(&triggers[0]), &Context::detached()).await.unwrap();
    assert_eq!(world.tree().listeners.len(), 2, "the failure is not repaired yet");
}
