//! What somebody changed, broke or removed outside is found by lists, and brought back.

use std::sync::Mutex;

use staffetta_driver::Provisioning;
use staffetta_driver::memory::Fault;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{AnyEvent, Outlet};

use super::*;

const MOMENT: Duration = Duration::from_millis(1);

async fn standing(spec: &LbaasServiceSpec) -> World {
    let world = world();
    world.want(spec);
    world.slice("s1", &["10.1.0.1", "10.1.0.2"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
}

impl World {
    /// The next comparison comes. Answers what it signals.
    async fn compared(&self) -> Vec<AnyEvent> {
        let signals = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&signals);
        let outlet = Outlet::new(move |signal| taken.lock().unwrap().push(signal));
        let until = self.options.check_interval().unwrap() + MOMENT;
        let compared = tokio::time::timeout(until, self.sources[0].run(outlet)).await;
        assert!(compared.is_err(), "it goes on for ever");
        std::mem::take(&mut signals.lock().unwrap())
    }

    /// What the next comparison signals is handled. Answers how much that was.
    async fn repaired(&self) -> usize {
        let signals = self.compared().await;
        for signal in &signals {
            assert!(self.handler.wants(signal));
            self.handler.handle(signal, &Turn::alone()).await.unwrap();
        }
        signals.len()
    }
}

#[tokio::test(start_paused = true)]
async fn as_long_as_nothing_differs_two_lists_are_all() {
    let world = standing(&public()).await;
    let (calls, addresses) = (world.calls().len(), world.addresses.calls().len());
    assert_eq!(world.repaired().await, 0);
    assert_eq!((&world.calls()[calls..], world.addresses.calls().len()), (&["list"][..], addresses + 1));
    assert_eq!(world.told.reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_comes_back_and_that_is_told() {
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
        let world = standing(&spec()).await;
        let before = world.tree();
        world.services.change_load_balancer(&before.id, change);
        assert_ne!(world.tree(), before);
        assert_eq!(world.repaired().await, 1, "{number}");
        assert_eq!(world.told.reasons(), ["LoadBalancerDrifted"]);
        assert_eq!(world.members(HTTP), ["10.1.0.1:8080", "10.1.0.2:8080"], "{number}");
        assert_eq!(world.tree().listeners[0].settings, before.listeners[0].settings);
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()), "{number}");
        world.event().await.unwrap();
        assert_eq!(world.repaired().await, 0, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_was_removed_or_is_broken_is_made_anew() {
    for broken in [true, false] {
        let world = standing(&public()).await;
        let before = world.tree();
        if broken {
            world.services.break_load_balancer(&before.id);
        } else {
            world.services.remove_load_balancer(&before.id);
        }
        assert_eq!(world.repaired().await, 1);
        assert_ne!(world.tree().id, before.id);
        assert_eq!(world.tree().status, Provisioning::Active);
        assert_eq!(world.services.public_ips()[0].1.port, Some(world.tree().port), "its address leads there");
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
        let told = world.told.reasons();
        let expected: &[_] =
            if broken { &["LoadBalancerDrifted", "LoadBalancerReplaced"] } else { &["LoadBalancerDrifted"] };
        assert_eq!(told, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_at_work_knows_better_than_a_list() {
    let world = standing(&spec()).await;
    let refused = Fault::Fail(DriverError::new(Reason::Unavailable, "ask"));
    world.balancers.faults().inject(LoadBalancerMethod::SetMembers, 1, refused);
    world.services.change_load_balancer(&world.tree().id, |tree| tree.listeners.clear());
    world.slice("s1", &["10.1.0.3"]).await.unwrap_err();
    assert_eq!(world.compared().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_a_moment_ago_is_no_drift() {
    let world = standing(&spec()).await;
    // The event of this write is still to come, and the list knows more than the index.
    let change = async {
        tokio::time::sleep(world.options.check_interval().unwrap().saturating_sub(MOMENT)).await;
        world.slice("s1", &["10.1.0.3"]).await.unwrap();
        world.calls().len()
    };
    let (signalled, calls) = tokio::join!(world.repaired(), change);
    assert_eq!(signalled, 0, "what is listed is compared with what was written last");
    assert_eq!(world.calls()[calls..], ["list"], "nobody looks again");
    assert_eq!(world.told.reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_address_of_the_user_that_somebody_led_away_comes_back_whether_this_process_restarted_or_not() {
    for restarted in [false, true] {
        let (mut world, ip) = (world(), IpAddr::from([192, 0, 2, 1]));
        let users = world.services.insert_public_ip(ip);
        world.want(&LbaasServiceSpec { lb_ip: Some(ip), ..public() });
        world.event().await.unwrap();
        world.event().await.unwrap();
        assert_eq!((world.ingress(), world.compared().await.len()), (vec![ip], 0), "it bears no mark");
        let port = world.tree().port;
        let leads_to = |world: &World| world.services.public_ip(&users).unwrap().thing.port;
        assert_eq!(leads_to(&world), Some(port.clone()));
        let shown = world.shown().unwrap().public_ip.unwrap();
        world.drivers().public_ip.disassociate(&shown, &port).await.unwrap();
        if restarted {
            world.restart().await;
            world.feed(Event::Added(world.api.object())).await.unwrap();
        } else {
            assert_eq!(world.repaired().await, 1);
            assert_eq!(world.told.reasons(), ["LoadBalancerDrifted"]);
        }
        assert_eq!(leads_to(&world), Some(port), "restarted: {restarted}");
        world.event().await.unwrap();
        assert_eq!(world.repaired().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_a_failure_of_the_comparison_alone() {
    let world = standing(&spec()).await;
    let outage = Fault::Fail(DriverError::new(Reason::Unavailable, "list"));
    world.balancers.faults().inject(LoadBalancerMethod::List, 1, outage);
    let failed = world.sources[0].run(Outlet::new(|_| panic!("nothing is known"))).await.unwrap_err();
    assert!(failed.transient());
    world.services.remove_load_balancer(&world.tree().id);
    assert_eq!(world.repaired().await, 1);
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let mut world = world();
    world.options.check_interval_s = 0;
    world.replace(world.drivers(), true);
    assert!(world.sources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_takes_several_changes_is_brought_back_by_the_attempts_that_follow() {
    let world =
        standing(&LbaasServiceSpec { ports: vec![port("http", 80), port("http", 81)], ..spec() }).await;
    world.services.change_load_balancer(&world.tree().id, |tree| tree.listeners.clear());
    let signals = world.compared().await;
    let busy = Fault::Fail(DriverError::new(Reason::Unavailable, "make a listener"));
    world.balancers.faults().inject(LoadBalancerMethod::EnsureListener, 1, busy);
    world.handler.handle(&signals[0], &Turn::alone()).await.unwrap_err();
    world.handler.handle(&signals[0], &Turn::alone()).await.unwrap();
    assert_eq!(world.tree().listeners.len(), 2, "nothing else brings it back");
}
