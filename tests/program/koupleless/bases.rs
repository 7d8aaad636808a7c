//! How bases become nodes, and how their nodes go.

use staffetta_koupleless_base::{BaseCommand, Behaviour, SimulatedBase, SimulatedBaseOptions};

use super::world::{World, active, asked};
use crate::process::eventually;

#[tokio::test]
async fn a_base_that_introduces_itself_becomes_a_node_with_its_properties() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let _base = world.base(1).await;
    let node = world.node("vnode.base-1.dev", "True").await;
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [
        ("virtual-kubelet.koupleless.io/component", "vnode"),
        ("virtual-kubelet.koupleless.io/env", "dev"),
        ("base.koupleless.io/name", "shop"),
        ("base.koupleless.io/version", "1.1"),
        ("base.koupleless.io/cluster-name", "east"),
        ("base.koupleless.io/tunnel", "koupleless-http"),
        ("staffetta.dev/handler", "vnode"),
        ("type", "virtual-kubelet"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(labels["base.koupleless.io/tunnel-port"].parse::<u16>().is_ok());
    let taints = node.spec.unwrap().taints.unwrap();
    for key in ["schedule.koupleless.io/virtual-node", "schedule.koupleless.io/node-env"] {
        assert!(taints.iter().any(|taint| taint.key == key && taint.effect == "NoExecute"), "{key}");
    }
    let status = node.status.unwrap();
    let kinds: Vec<_> = status.addresses.unwrap().into_iter().map(|address| address.type_).collect();
    assert_eq!(kinds, ["InternalIP", "Hostname"]);
    assert!(status.capacity.unwrap().contains_key("memory"));
    assert!(!world.holder("vnode.base-1.dev").await.is_empty());
}

#[tokio::test]
async fn a_base_that_says_it_ends_loses_its_node_at_once_and_gets_it_back_when_it_returns() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node("vnode.base-1.dev", "True").await;
    base.behave(|behaviour| behaviour.state = "DEACTIVATED".into());
    world.node_gone("vnode.base-1.dev").await;
    base.behave(|behaviour| behaviour.state = "ACTIVATED".into());
    world.node("vnode.base-1.dev", "True").await;
}

#[tokio::test]
async fn a_base_that_does_not_answer_becomes_not_ready_and_then_loses_its_node() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node("vnode.base-1.dev", "True").await;
    base.behave(|behaviour| behaviour.reachable = false);
    world.node("vnode.base-1.dev", "False").await;
    world.node_gone("vnode.base-1.dev").await;
    let reported = async || !world.events("MachineGone").await.is_empty();
    eventually("an Event tells why", reported).await;
}

#[tokio::test]
async fn a_base_whose_heartbeats_arrive_is_asked_less_often_than_one_without() {
    let world = World::new(1).await;
    let intervals = "poll_interval_ms = 500\nhealth_interval_ms = 60000\n";
    let _replica = world.replica_with(0, intervals).await;
    let [base, silent] = [world.base(1).await, world.base(2).await];
    for number in 1..=2 {
        world.node(&format!("vnode.base-{number}.dev"), "True").await;
    }
    silent.behave(|behaviour| behaviour.reports = false);
    let queries = |base: &SimulatedBase| base.received(BaseCommand::QueryAllBiz);
    eventually("one of them is asked more often", async || queries(&silent) >= queries(&base) + 10).await;
    for number in 1..=2 {
        world.node(&format!("vnode.base-{number}.dev"), "True").await;
    }
}

#[tokio::test]
async fn a_base_that_reports_and_does_not_answer_gets_its_node_back_when_it_answers() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node("vnode.base-1.dev", "True").await;
    base.behave(Behaviour::hold_all);
    let gone = async || world.nodes().get_opt("vnode.base-1.dev").await.unwrap().is_none();
    eventually("the node is removed", gone).await;
    let asked = base.received(BaseCommand::Health);
    eventually("it is asked again", async || base.received(BaseCommand::Health) > asked + 1).await;
    assert!(gone().await);
    base.behave(Behaviour::answer_all);
    world.node("vnode.base-1.dev", "True").await;
}

#[tokio::test]
async fn a_restarted_controller_finds_its_bases_and_gives_each_one_its_time() {
    let world = World::new(1).await;
    let mut replica = world.replica(0).await;
    let base = world.base(1).await;
    let node = world.node("vnode.base-1.dev", "True").await;
    world.pod("web", "vnode.base-1.dev", "1").await;
    world.running("web").await;
    replica.process.terminate().await;
    assert_eq!(world.holder("vnode.base-1.dev").await, "", "the lease was given up");
    base.behave(|behaviour| (behaviour.reports, behaviour.reachable) = (false, false));
    let _replica = world.replica(0).await;
    let held = async || !world.holder("vnode.base-1.dev").await.is_empty();
    eventually("the lease is held", held).await;
    base.behave(|behaviour| behaviour.reachable = true);
    let again = world.node("vnode.base-1.dev", "True").await;
    assert_eq!(again.metadata.uid, node.metadata.uid, "it is the same node");
    world.running("web").await;
    assert_eq!(asked(&base), ["+cart:1"], "nothing was loaded again");
}

#[tokio::test]
async fn a_base_that_restarts_gets_its_modules_again_and_keeps_its_own() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let options = SimulatedBaseOptions {
        built_in: vec![("own".into(), "1".into())],
        ..SimulatedBaseOptions::numbered(1, 1)
    };
    let base = world.base_with(options).await;
    world.node("vnode.base-1.dev", "True").await;
    world.pod("web", "vnode.base-1.dev", "1").await;
    world.running("web").await;
    base.restart();
    eventually("the module is loaded again", async || active(&base) == ["cart:1", "own:1"]).await;
    world.running("web").await;
    assert_eq!(asked(&base), ["+cart:1", "+cart:1"], "what no pod asked for is left alone");
}

#[tokio::test]
async fn a_base_that_flaps_keeps_its_modules_and_disturbs_no_other() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let [base, other] = [world.base(1).await, world.base(2).await];
    for number in 1..=2 {
        world.node(&format!("vnode.base-{number}.dev"), "True").await;
        world.pod(&format!("web-{number}"), &format!("vnode.base-{number}.dev"), "1").await;
        world.running(&format!("web-{number}")).await;
    }
    base.behave(|behaviour| behaviour.flaps = true);
    world.node_gone("vnode.base-1.dev").await;
    world.pod("more", "vnode.base-2.dev", "2").await;
    world.running("more").await;
    base.behave(|behaviour| behaviour.flaps = false);
    world.node("vnode.base-1.dev", "True").await;
    world.running("web-1").await;
    assert_eq!(
        (asked(&base), asked(&other)),
        (vec!["+cart:1".to_owned()], vec!["+cart:1".into(), "+cart:2".into(), "=cart:2".into()])
    );
}
