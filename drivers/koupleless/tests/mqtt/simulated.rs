//! The tunnel with bases that answer by themselves, as Arklet does.

use std::time::Duration;

use staffetta_driver::tunnel::OperationResponseResult::{Fail, Success};
use staffetta_driver::tunnel::{ContainerState, ContainerStatusData, NodeId, Tunnel, TunnelEvent};
use staffetta_koupleless::MqttVersion;
use staffetta_koupleless_base::{AnswerFault, BaseBroker, BaseCommand, SimulatedBase, SimulatedBaseOptions};

use crate::broker::Broker;
use crate::world::{World, cart, options};

/// Starts a tunnel, and a base that has a node and was asked for its modules.
async fn start() -> (World, SimulatedBase, NodeId) {
    let broker = Broker::shared();
    let mut world = World::start(options(&broker, MqttVersion::V3));
    world.connected().await;
    let (host, environment) = ("127.0.0.1".to_owned(), world.environment.clone());
    let broker = BaseBroker { host, port: broker.port(false), environment };
    let heartbeat = Duration::from_millis(50);
    let base =
        SimulatedBase::mqtt(SimulatedBaseOptions { heartbeat, ..SimulatedBaseOptions::default() }, broker);
    let (id, event) = world.receiver.recv().await.unwrap();
    let TunnelEvent::NodeDiscovered(node) = event else { panic!("{event:?}") };
    world.tunnel.on_node_start(&id, &node).await;
    assert!(modules(&mut world).await.is_empty(), "it is subscribed and asked for its modules");
    (world, base, id)
}

/// Returns the modules of the next report of them. No answer may arrive before.
async fn modules(world: &mut World) -> Vec<ContainerStatusData> {
    match world.event().await {
        TunnelEvent::AllContainerStatuses(modules) => modules,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_loads_a_module_reports_it_and_unloads_it_on_a_real_broker() {
    let (mut world, base, id) = start().await;
    world.tunnel.fetch_health_data(&id).await.unwrap();
    let event = world.event().await;
    assert!(
        matches!(&event, TunnelEvent::NodeStatus(status) if status.resources.contains_key("memory")),
        "{event:?}"
    );
    world.install(&id).await.unwrap();
    assert_eq!((world.answer().await.1.result, base.modules().len()), (Success, 1));
    let loaded = modules(&mut world).await;
    assert_eq!((loaded[0].key.as_str(), loaded[0].state), ("cart:1.0.0", ContainerState::Activated));
    world.uninstall(&id).await.unwrap();
    assert_eq!((world.answer().await.1.result, base.modules().len()), (Success, 0));
    let commands: Vec<_> = base.operations().iter().map(|operation| operation.command).collect();
    assert_eq!(commands, [BaseCommand::InstallBiz, BaseCommand::UninstallBiz]);
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn duplicated_and_reordered_answers_count_once_and_a_foreign_one_never_on_a_real_broker() {
    let (mut world, base, id) = start().await;
    let answer_with =
        |command, fault| base.behave(|behaviour| drop(behaviour.answers.insert(command, fault)));
    answer_with(BaseCommand::InstallBiz, AnswerFault::Duplicate);
    world.install(&id).await.unwrap();
    assert!(world.answer().await.0);
    assert_eq!(modules(&mut world).await.len(), 1, "the second answer is dropped");

    answer_with(BaseCommand::UninstallBiz, AnswerFault::Reorder);
    world.uninstall(&id).await.unwrap();
    while !base.modules().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.tunnel.query_all_container_status_data(&id).await.unwrap();
    assert!(modules(&mut world).await.is_empty(), "the state arrives before the answer");
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.result), (false, Success));

    base.behave(|behaviour| behaviour.claims = Some("base-2".to_owned()));
    world.install(&id).await.unwrap();
    assert_eq!(modules(&mut world).await.len(), 1, "the answer for another base is dropped");
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_that_restarts_asks_for_its_baseline_again_on_a_real_broker() {
    let broker = Broker::shared();
    let mut world = World::start(options(&broker, MqttVersion::V3));
    world.connected().await;
    let environment = world.environment.clone();
    let broker = BaseBroker { host: "127.0.0.1".to_owned(), port: broker.port(false), environment };
    let options = SimulatedBaseOptions { asks_baseline: true, ..SimulatedBaseOptions::default() };
    let base = SimulatedBase::mqtt(options, broker);
    for restarts in 1..=2 {
        let TunnelEvent::BaselineQuery(query) = world.event().await else { panic!("no query") };
        query.answer(vec![cart()]);
        while base.baselines().len() < restarts {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((base.modules().len(), base.operations().len()), (1, 0));
        base.restart();
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_module_that_is_loaded_twice_is_a_failure_with_its_code_on_a_real_broker() {
    let (mut world, base, id) = start().await;
    world.install(&id).await.unwrap();
    assert_eq!(world.answer().await.1.result, Success);
    modules(&mut world).await;
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert_eq!((answer.result, answer.reason.as_str(), base.modules().len()), (Fail, "REPEAT_BIZ", 1));
}
