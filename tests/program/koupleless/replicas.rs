//! How several replicas share bases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use kube::api::DeleteParams;
use staffetta_koupleless_base::{SimulatedBase, SimulatedBaseOptions};

use super::world::{Replica, World, active, asked};
use crate::process::eventually;

/// The number of bases.
const BASES: u16 = 12;

fn node(number: u16) -> String {
    format!("vnode.base-{number}.dev")
}

/// Starts three replicas and bases, each with a pod, and waits until the pods run.
async fn shared(world: &World) -> ([Replica; 3], Vec<SimulatedBase>) {
    let [first, second, third] = [0, 1, 2].map(|number| world.replica(number));
    let replicas = tokio::join!(first, second, third);
    let bases = join_all((1..=BASES).map(|number| world.base(number))).await;
    for number in 1..=BASES {
        world.node(&node(number), "True").await;
        world.pod(&format!("web-{number}"), &node(number), "1").await;
    }
    for number in 1..=BASES {
        world.running(&format!("web-{number}")).await;
    }
    (replicas.into(), bases)
}

/// Returns the numbers of the bases by the holder of their lease.
async fn shares(world: &World) -> BTreeMap<String, BTreeSet<u16>> {
    let mut shares: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for number in 1..=BASES {
        shares.entry(world.holder(&node(number)).await).or_default().insert(number);
    }
    shares
}

/// Returns the replica with the largest share: its number, its identity, and the bases whose lease it holds.
async fn largest(world: &World, replicas: &[Replica; 3]) -> (usize, String, BTreeSet<u16>) {
    let mut shares = shares(world).await;
    let mut all = Vec::new();
    for (number, replica) in replicas.iter().enumerate() {
        let identity = replica.identity().await;
        let share = shares.remove(&identity).unwrap_or_default();
        all.push((number, identity, share));
    }
    all.into_iter().max_by_key(|(_, _, share)| share.len()).unwrap()
}

/// Asserts that each base was asked to load its module once, and nothing else.
fn assert_loaded_once(bases: &[SimulatedBase]) {
    for base in bases {
        assert_eq!(asked(base), ["+cart:1"], "{}", base.identity());
    }
}

#[tokio::test]
async fn of_three_replicas_each_has_a_share_and_that_of_one_that_is_killed_is_taken_over() {
    let world = World::new(3).await;
    let (replicas, bases) = shared(&world).await;
    assert_loaded_once(&bases);
    let before = shares(&world).await;
    assert!(before.len() > 1, "they are shared: {before:?}");
    let (number, killed, lost) = largest(&world, &replicas).await;
    replicas[number].process.kill("KILL").await;
    eventually("its share is taken over", async || !shares(&world).await.contains_key(&killed)).await;
    assert!(!shares(&world).await.contains_key(""));
    for number in &lost {
        world.pod(&format!("more-{number}"), &node(*number), "2").await;
    }
    for number in &lost {
        world.running(&format!("more-{number}")).await;
        let base = &bases[usize::from(*number) - 1];
        assert_eq!(asked(base), ["+cart:1", "+cart:2", "=cart:2"], "{}", base.identity());
    }
    let kept: Vec<_> = (1..=BASES).filter(|number| !lost.contains(number)).collect();
    assert!(kept.iter().all(|number| asked(&bases[usize::from(*number) - 1]).len() == 1));
}

#[tokio::test]
async fn a_replica_that_takes_a_node_over_loads_nothing_into_an_impostor_that_reported_to_it() {
    let world = World::new(2).await;
    let (holder, successor) = (world.replica(0).await, world.replica(1).await);
    let base = world.base_of(SimulatedBaseOptions::numbered(1, 1), 0).await;
    world.node(&node(1), "True").await;
    assert_eq!(world.holder(&node(1)).await, holder.identity().await, "the other one did not hear the base");
    let ip = "127.0.0.99".parse().unwrap();
    let options = SimulatedBaseOptions { ip, asks_baseline: true, ..SimulatedBaseOptions::numbered(1, 1) };
    let impostor = world.base_of(options, 1).await;
    eventually("the heir believes it", async || {
        let answers = impostor.baselines();
        if answers.last().is_some_and(Result::is_err) {
            impostor.restart();
        }
        answers.iter().any(Result::is_ok)
    })
    .await;
    holder.process.kill("KILL").await;
    let taken = successor.identity().await;
    eventually("the node is taken over", async || world.holder(&node(1)).await == taken).await;
    world.pod("web", &node(1), "1").await;
    world.running("web").await;
    assert_eq!((asked(&base), asked(&impostor)), (vec!["+cart:1".to_owned()], Vec::new()));
    let none = "staffetta_tunnel_dropped_reports_total{tunnel=\"http\"} 0\n";
    eventually("its reports are dropped", async || !successor.process.get("/metrics").await.1.contains(none))
        .await;
}

#[tokio::test]
async fn a_base_that_moves_while_its_node_is_taken_over_keeps_its_pods() {
    let world = World::new(2).await;
    let (holder, successor) = (world.replica(0).await, world.replica(1).await);
    let base = world.base_of(SimulatedBaseOptions::numbered(1, 1), 0).await;
    world.node(&node(1), "True").await;
    let pod = world.pod("web", &node(1), "1").await;
    world.running("web").await;
    let before = world.nodes().get(&node(1)).await.unwrap().metadata.uid;
    holder.process.kill("KILL").await;
    drop(base);
    let ip = "127.0.0.98".parse().unwrap();
    let moved = world.base_of(SimulatedBaseOptions { ip, ..SimulatedBaseOptions::numbered(1, 1) }, 1).await;
    let taken = successor.identity().await;
    eventually("the node is taken over", async || world.holder(&node(1)).await == taken).await;
    eventually("its module is loaded again", async || asked(&moved) == ["+cart:1"]).await;
    world.running("web").await;
    assert_eq!(world.nodes().get(&node(1)).await.unwrap().metadata.uid, before);
    assert_eq!(world.pods().get("web").await.unwrap().metadata.uid, pod.metadata.uid);
}

#[tokio::test]
async fn a_lease_that_somebody_deletes_is_created_again_by_its_holder() {
    let world = World::new(1).await;
    let replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(&node(1), "True").await;
    world.pod("web", &node(1), "1").await;
    world.running("web").await;
    let uid = async || world.leases().get_opt(&node(1)).await.unwrap().and_then(|lease| lease.metadata.uid);
    let before = uid().await;
    world.leases().delete(&node(1), &DeleteParams::default()).await.unwrap();
    eventually("it is created again", async || uid().await.is_some_and(|uid| Some(uid) != before)).await;
    assert_eq!(world.holder(&node(1)).await, replica.identity().await);
    world.pod("more", &node(1), "2").await;
    world.running("more").await;
    assert_eq!(asked(&base), ["+cart:1", "+cart:2", "=cart:2"], "the base was looked after all the time");
    let taken = "staffetta_virtual_node_leases_total{handler=\"vnode\",change=\"taken\"} 1\n";
    assert!(replica.process.get("/metrics").await.1.contains(taken));
}

/// The sample of the metric of changed Leases.
fn leases(change: &str, count: u32) -> String {
    format!("staffetta_virtual_node_leases_total{{handler=\"vnode\",change=\"{change}\"}} {count}\n")
}

#[tokio::test]
async fn a_replica_that_never_saw_a_deleted_lease_takes_the_node_when_its_holder_has_stopped() {
    let world = World::new(2).await;
    let holder = world.replica(0).await;
    let base = world.base(1).await;
    world.node(&node(1), "True").await;
    holder.proxy.faults().begin_outage();
    world.leases().delete(&node(1), &DeleteParams::default()).await.unwrap();
    let other = world.replica(1).await;
    let taken = leases("taken", 1);
    eventually("the other one takes it", async || other.process.get("/metrics").await.1.contains(&taken))
        .await;
    let (_, metrics) = holder.process.get("/metrics").await;
    assert!(metrics.contains(&leases("lost", 1)), "two act for the node");
    world.pod("web", &node(1), "1").await;
    world.running("web").await;
    assert_loaded_once(&[base]);
}

#[tokio::test]
async fn a_replica_that_stops_gives_up_its_share_at_once() {
    let world = World::new(3).await;
    let (mut replicas, bases) = shared(&world).await;
    let (number, stopped, _) = largest(&world, &replicas).await;
    assert!(replicas[number].process.terminate().await.success());
    for number in 1..=BASES {
        assert_ne!(world.holder(&node(number)).await, stopped, "it was given up at the end");
    }
    let taken = async || {
        let shares = shares(&world).await;
        !shares.contains_key(&stopped) && !shares.contains_key("")
    };
    eventually("its share is taken over", taken).await;
    assert_loaded_once(&bases);
    world.delete("web-1").await;
    world.gone("web-1").await;
    assert!(active(&bases[0]).is_empty());
}

#[tokio::test]
async fn a_replica_that_was_paused_does_nothing_for_what_it_has_lost() {
    let world = World::new(3).await;
    let (replicas, bases) = shared(&world).await;
    let (number, paused, lost) = largest(&world, &replicas).await;
    replicas[number].process.kill("STOP").await;
    // What it would do when it continues.
    for number in &lost {
        world.delete(&format!("web-{number}")).await;
        world.pod(&format!("more-{number}"), &node(*number), "2").await;
    }
    eventually("its share is taken over", async || !shares(&world).await.contains_key(&paused)).await;
    for number in &lost {
        world.gone(&format!("web-{number}")).await;
        world.running(&format!("more-{number}")).await;
    }
    replicas[number].process.kill("CONT").await;
    replicas[number].process.ready().await;
    // It must have looked at everything again.
    world.pod("late", &node(*lost.first().unwrap()), "3").await;
    world.running("late").await;
    for number in &lost {
        let mut asked = asked(&bases[usize::from(*number) - 1]);
        asked.retain(|operation| !operation.ends_with(":3"));
        asked[1..].sort();
        assert_eq!(asked, ["+cart:1", "+cart:2", "-cart:1", "=cart:2"], "base {number}");
    }
    eventually("it gets a share as any replica does", async || shares(&world).await.contains_key(&paused))
        .await;
    let without_late = |number: &u16| {
        let asked = asked(&bases[usize::from(*number) - 1]);
        asked.iter().filter(|operation| !operation.ends_with(":3")).count()
    };
    assert!(lost.iter().all(|number| without_late(number) == 4), "nothing was repeated");
}

#[tokio::test]
async fn replicas_that_join_get_their_share_and_that_of_one_that_dies_with_it_is_taken_over() {
    let world = World::new(3).await;
    let first = world.replica(0).await;
    let bases = join_all((1..=BASES).map(|number| world.base(number))).await;
    for number in 1..=BASES {
        world.node(&node(number), "True").await;
        world.pod(&format!("web-{number}"), &node(number), "1").await;
    }
    for number in 1..=BASES {
        world.running(&format!("web-{number}")).await;
    }
    let alone = shares(&world).await;
    assert_eq!(alone.into_keys().collect::<Vec<_>>(), [first.identity().await]);

    let second = world.replica(1).await;
    let both = [first.identity().await, second.identity().await];
    let halves = async || {
        let shares = shares(&world).await;
        both.iter()
            .all(|holder| shares.get(holder).is_some_and(|share| share.len() * 2 == usize::from(BASES)))
    };
    eventually("each replica has half of the nodes", &halves).await;

    let third = world.replica(2).await;
    let dies = third.identity().await;
    eventually("the third one gets nodes too", async || shares(&world).await.contains_key(&dies)).await;
    third.process.kill("KILL").await;
    eventually("each of the others has half of the nodes", &halves).await;
    assert_loaded_once(&bases);
    for number in 1..=BASES {
        world.pod(&format!("more-{number}"), &node(number), "2").await;
    }
    for number in 1..=BASES {
        world.running(&format!("more-{number}")).await;
        assert_eq!(
            asked(&bases[usize::from(number) - 1]),
            ["+cart:1", "+cart:2", "=cart:2"],
            "base {number}"
        );
    }
}

/// Starts two replicas, and a base that takes so many seconds to load a module. Returns, while the base loads a module for the pod
/// `web`, the replica that asked for it and the other one.
async fn loading(world: &World, seconds: u64) -> (Replica, Replica, SimulatedBase) {
    let (first, second) = tokio::join!(world.replica(0), world.replica(1));
    let install_time = Duration::from_secs(seconds);
    let base =
        world.base_with(SimulatedBaseOptions { install_time, ..SimulatedBaseOptions::numbered(1, 1) }).await;
    world.node(&node(1), "True").await;
    world.pod("web", &node(1), "1").await;
    eventually("the base loads the module", async || !base.modules().is_empty()).await;
    let asked_by = world.holder(&node(1)).await;
    if first.identity().await == asked_by { (first, second, base) } else { (second, first, base) }
}

/// Waits until this replica has the base and the pod runs, and asserts that the base was asked once.
async fn assert_taken_over(world: &World, base: &SimulatedBase, by: &Replica) {
    let identity = by.identity().await;
    eventually("the base is taken over", async || world.holder(&node(1)).await == identity).await;
    world.running("web").await;
    assert_loaded_once(std::slice::from_ref(base));
}

#[tokio::test]
async fn what_a_replica_asked_for_before_it_was_killed_is_not_asked_for_again() {
    let world = World::new(2).await;
    let (killed, other, base) = loading(&world, 15).await;
    killed.process.kill("KILL").await;
    assert_taken_over(&world, &base, &other).await;
}

#[tokio::test]
async fn what_a_replica_asked_for_before_it_was_paused_is_not_asked_for_again() {
    let world = World::new(2).await;
    let (paused, other, base) = loading(&world, 15).await;
    paused.process.kill("STOP").await;
    assert_taken_over(&world, &base, &other).await;
    paused.process.kill("CONT").await;
    paused.process.ready().await;
    // Both must have looked at everything again.
    world.pod("late", &node(1), "2").await;
    world.running("late").await;
    assert_eq!(asked(&base), ["+cart:1", "+cart:2", "=cart:2"]);
}

#[tokio::test]
async fn what_a_replica_asked_for_before_it_stopped_is_not_asked_for_again() {
    let world = World::new(2).await;
    let (mut stopped, other, base) = loading(&world, 4).await;
    assert!(stopped.process.terminate().await.success());
    assert_eq!(active(&base), ["cart:1"], "it waited for the base");
    assert_taken_over(&world, &base, &other).await;
}
