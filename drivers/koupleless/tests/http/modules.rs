//! Loading and unloading of modules.

use std::time::Duration;

use serde_json::json;
use staffetta_driver::Reason;
use staffetta_driver::tunnel::OperationResponseResult::{Fail, Success, Unknown};
use staffetta_driver::tunnel::{
    ContainerState, NetworkInfo, NodeActivation, NodeDescription, NodeMetadata, PodKey, Tunnel, TunnelEvent,
};
use staffetta_koupleless_base::{AnswerFault, BaseCommand, Behaviour};
use staffetta_virtual_node::vnode::TunnelLimits;

use crate::world::{World, answers, base, cart, impatient, options, requests};

#[tokio::test]
async fn a_base_is_asked_and_loads_and_unloads_a_module() {
    let (mut world, base, id) = World::with_base(options()).await;
    world.tunnel.fetch_health_data(&id).await.unwrap();
    let Some((_, TunnelEvent::NodeStatus(status))) = world.receiver.recv().await else { panic!("no status") };
    assert_eq!(status.resources["memory"].allocatable.0, "10Ki");

    world.install(&id).await.unwrap();
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.container_key.as_str(), answer.result), (true, "cart:1.0.0", Success));
    let model = json!({ "bizName": "cart", "bizVersion": "1.0.0", "bizUrl": "https://example.com/cart.jar" });
    assert_eq!(requests(&base, BaseCommand::InstallBiz), std::slice::from_ref(&model));

    world.tunnel.query_all_container_status_data(&id).await.unwrap();
    let Some((_, TunnelEvent::AllContainerStatuses(all))) = world.receiver.recv().await else {
        panic!("none")
    };
    assert_eq!(all[0].key, world.tunnel.get_container_unique_key(&PodKey::All, &cart()));
    assert_eq!((all.len(), all[0].state), (1, ContainerState::Activated));

    world.uninstall(&id).await.unwrap();
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.container_key.as_str(), answer.result), (false, "cart:1.0.0", Success));
    assert_eq!(requests(&base, BaseCommand::UninstallBiz), [model]);
}

#[tokio::test]
async fn a_module_that_a_base_does_not_have_is_unloaded_but_was_not_loaded() {
    let (mut world, base, id) = World::with_base(options()).await;
    world.uninstall(&id).await.unwrap();
    assert_eq!(world.answer().await.1.result, Success);
    let absent = json!({ "code": "SUCCESS", "data": { "code": "NOT_FOUND_BIZ", "message": "gone" } });
    answers(&base, BaseCommand::InstallBiz, 200, &absent.to_string());
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert_eq!(
        (answer.result, answer.reason.as_str(), answer.message.as_str()),
        (Fail, "NOT_FOUND_BIZ", "gone")
    );
}

#[tokio::test]
async fn a_repeated_request_is_sent_once_while_it_is_under_way() {
    let (mut world, base, id) = World::with_base(options()).await;
    base.behave(Behaviour::hold_all);
    world.install(&id).await.unwrap();
    assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Conflict);
    base.behave(Behaviour::answer_all);
    assert!(world.answer().await.0);
    assert_eq!(
        (requests(&base, BaseCommand::InstallBiz).len(), requests(&base, BaseCommand::UninstallBiz).len()),
        (1, 0)
    );
    world.install(&id).await.unwrap();
    assert!(world.answer().await.0);
}

#[tokio::test]
async fn another_command_for_a_module_does_not_wait_for_the_answer_to_the_one_before() {
    let (mut world, base, id) = World::with_base(options()).await;
    let late = AnswerFault::Late(Duration::from_secs(3600));
    base.behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::InstallBiz, late)));
    world.install(&id).await.unwrap();
    while base.modules().is_empty() {
        tokio::task::yield_now().await;
    }
    world.uninstall(&id).await.unwrap();
    let (install, answer) = world.answer().await;
    assert!(!install && answer.result == Success && base.modules().is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_second_version_of_a_module_is_activated() {
    let (mut world, base, id) = World::with_base(options()).await;
    world.install(&id).await.unwrap();
    world.answer().await;
    let mut second = cart();
    second.env.as_mut().unwrap()[0].value = Some("2.0.0".to_owned());
    for activate in [false, true] {
        let tunnel = &world.tunnel;
        let (base, pod) = (&id, &PodKey::All);
        if activate {
            tunnel.activate_container(base, pod, &second).await.unwrap();
        } else {
            tunnel.start_container(base, pod, &second).await.unwrap();
        }
        let (start, answer) = world.answer().await;
        assert_eq!((start, answer.result, answer.container_key.as_str()), (true, Success, "cart:2.0.0"));
    }
    let states: Vec<_> = base.modules().into_iter().map(|module| module.state).collect();
    assert_eq!(states, ["DEACTIVATED", "ACTIVATED"]);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_a_failure_once_and_then_dropped() {
    let (mut world, base, id) = World::with_base(impatient()).await;
    base.behave(Behaviour::hold_all);
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert_eq!((answer.result, answer.reason.as_str()), (Unknown, "DriverUnavailable"));
    assert!(
        answer.message.contains("no answer") && answer.message.contains("may have taken effect"),
        "{answer:?}"
    );
    base.behave(Behaviour::answer_all);
    base.behave(|behaviour| behaviour.state = "DEACTIVATED".to_owned());
    world.post("heartbeat", &base.heartbeat()).await;
    let Some((_, TunnelEvent::NodeDiscovered(node))) = world.receiver.recv().await else {
        panic!("a late answer")
    };
    assert_eq!(node.metadata.status, NodeActivation::Deactivated);
}

#[tokio::test]
async fn a_slow_base_delays_no_other() {
    let (mut world, slow, slow_id) = World::with_base(options()).await;
    let quick = base("base-2").await;
    world.post("heartbeat", &quick.heartbeat()).await;
    let (quick_id, _) = world.receiver.recv().await.unwrap();
    slow.behave(Behaviour::hold_all);
    world.install(&slow_id).await.unwrap();
    let tunnel = world.tunnel.clone();
    let asking = tokio::spawn(async move { tunnel.query_all_container_status_data(&slow_id).await });
    world.install(&quick_id).await.unwrap();
    assert!(world.answer().await.0);
    world.tunnel.query_all_container_status_data(&quick_id).await.unwrap();
    assert!(!asking.is_finished() && requests(&slow, BaseCommand::InstallBiz).len() == 1);
}

#[tokio::test]
async fn a_container_that_is_no_module_is_refused_before_anything_is_sent() {
    let (world, base, id) = World::with_base(options()).await;
    let mut container = cart();
    container.env = None;
    let error = world.tunnel.start_container(&id, &PodKey::All, &container).await.unwrap_err();
    assert!(error.reason() == Reason::Refused && error.to_string().contains("BIZ_VERSION"), "{error}");
    assert!(requests(&base, BaseCommand::InstallBiz).is_empty());
}

#[tokio::test]
async fn a_node_of_an_earlier_process_is_called_at_the_address_of_its_object() {
    let mut world = World::start(options()).await;
    let (base, id) = (base("base-1").await, "base-1".parse().unwrap());
    assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Awaited);
    let node_ip = Some("127.0.0.1".parse().unwrap());
    let network_info =
        NetworkInfo { node_ip, host_name: String::new(), port: base.address().map(|address| address.port()) };
    let status = NodeActivation::Activated;
    let metadata = NodeMetadata { name: String::new(), version: String::new(), status };
    let node = NodeDescription {
        metadata,
        network_info,
        custom_labels: [].into(),
        tunnel_data: [].into_iter().collect(),
    };
    world.tunnel.on_node_start(&id, &node).await;
    world.install(&id).await.unwrap();
    assert_eq!(world.answer().await.1.result, Success);
    world.tunnel.on_node_stop(&id).await;
    assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Awaited);
}

#[tokio::test]
async fn a_node_that_stops_ends_its_changes_and_can_begin_again_at_once() {
    let (mut world, base, id) = World::with_base(options()).await;
    base.behave(Behaviour::hold_all);
    world.install(&id).await.unwrap();
    world.tunnel.on_node_stop(&id).await;
    world.post("heartbeat", &base.heartbeat()).await;
    let (_, event) = world.receiver.recv().await.unwrap();
    assert!(matches!(event, TunnelEvent::NodeDiscovered(_)), "{event:?}");
    assert!(requests(&base, BaseCommand::InstallBiz).is_empty(), "it was not sent yet, and never is");
    world.uninstall(&id).await.unwrap();
    base.behave(Behaviour::answer_all);
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.result), (false, Success));
}

#[tokio::test]
async fn a_tunnel_that_is_stopped_cancels_what_is_under_way_and_can_be_started_again() {
    let (mut world, base, id) = World::with_base(options()).await;
    base.behave(Behaviour::hold_all);
    world.install(&id).await.unwrap();
    world.running.abort();
    assert!(world.receiver.recv().await.is_none(), "nothing holds the sender any longer");
    assert!(!world.tunnel.ready());
    assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Unavailable);
    let (sender, mut receiver) = staffetta_virtual_node::vnode::channel(TunnelLimits::default());
    base.behave(Behaviour::answer_all);
    let (tunnel, again) = (world.tunnel.clone(), world.tunnel.clone());
    let running = tokio::spawn(async move { again.start("client", "test", sender).await });
    while !tunnel.ready() {
        tokio::task::yield_now().await;
    }
    world.install(&id).await.unwrap();
    assert!(matches!(receiver.recv().await, Some((_, TunnelEvent::StartContainerResponse(_)))));
    running.abort();
}
