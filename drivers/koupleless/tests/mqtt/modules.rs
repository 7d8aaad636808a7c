//! Loading and unloading of modules.

use std::num::NonZeroU64;

use serde_json::json;
use staffetta_driver::tunnel::OperationResponseResult::{Success, Unknown};
use staffetta_driver::tunnel::{ContainerState, Tunnel, TunnelEvent};
use staffetta_koupleless::{MqttTunnelOptions, MqttVersion};

use crate::base::operation;
use crate::broker::Broker;
use crate::world::{World, cart, options};

/// Asks a base for everything, and loads and unloads a module.
async fn live(options: MqttTunnelOptions) {
    let broker = Broker::shared();
    let (mut world, mut base, id) = World::with_base(&broker, options).await;
    world.tunnel.fetch_health_data(&id).await.unwrap();
    assert_eq!(base.command().await, ("health".to_owned(), json!({})));
    let jvm = json!({ "java max metaspace": 10240, "java committed metaspace": 1024 });
    base.report("health", &json!({ "code": "SUCCESS", "data": { "healthData": { "jvm": jvm } } })).await;
    let TunnelEvent::NodeStatus(status) = world.event().await else { panic!("no status") };
    assert_eq!(status.resources["memory"].capacity.0, "10Ki");

    world.install(&id).await.unwrap();
    let model = json!({ "bizName": "cart", "bizVersion": "1.0.0", "bizUrl": "https://example.com/cart.jar" });
    assert_eq!(base.command().await, ("installBiz".to_owned(), model.clone()));
    // The caller repeats it only after it has looked: no answer to the earlier one is certain to come.
    world.install(&id).await.unwrap();
    assert_eq!(base.command().await, ("installBiz".to_owned(), model.clone()));
    base.report("bizOperation", &operation("installBiz", "SUCCESS")).await;
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.container_key.as_str(), answer.result), (true, "cart:1.0.0", Success));

    world.tunnel.query_all_container_status_data(&id).await.unwrap();
    base.queried().await;
    let modules = json!([{ "name": "cart", "version": "1.0.0", "state": "ACTIVATED" }]);
    base.report("simpleBiz", &modules).await;
    let TunnelEvent::AllContainerStatuses(all) = world.event().await else { panic!("no modules") };
    assert_eq!((all.len(), all[0].key.as_str(), all[0].state), (1, "cart:1.0.0", ContainerState::Activated));

    world.uninstall(&id).await.unwrap();
    assert_eq!(base.command().await, ("uninstallBiz".to_owned(), model.clone()));
    base.report("bizOperation", &operation("uninstallBiz", "NOT_FOUND_BIZ")).await;
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.result), (false, Success));

    base.report("queryBaseline", &json!({ "identity": base.id, "name": "shop" })).await;
    let TunnelEvent::BaselineQuery(query) = world.event().await else { panic!("no query") };
    assert_eq!(query.request.name, "shop");
    query.answer(vec![cart()]);
    assert_eq!(base.command().await, ("base/baseline".to_owned(), json!([model])));
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_lives_over_mqtt_3_1_1_on_a_real_broker() {
    live(options(&Broker::shared(), MqttVersion::V3)).await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_lives_over_mqtt_5_on_a_real_broker() {
    live(options(&Broker::shared(), MqttVersion::V5)).await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_late_a_duplicated_and_an_unasked_answer_are_dropped_on_a_real_broker() {
    let broker = Broker::shared();
    let operation_timeout_ms = NonZeroU64::new(1).unwrap();
    let impatient = MqttTunnelOptions { operation_timeout_ms, ..options(&broker, MqttVersion::V3) };
    let (mut world, mut base, id) = World::with_base(&broker, impatient).await;
    world.install(&id).await.unwrap();
    let (install, answer) = world.answer().await;
    assert_eq!((install, answer.result, answer.reason.as_str()), (true, Unknown, "DriverUnavailable"));
    assert!(answer.message.contains("may have taken effect"), "{answer:?}");
    for command in ["installBiz", "installBiz", "uninstallBiz", "format"] {
        base.report("bizOperation", &operation(command, "SUCCESS")).await;
    }
    base.report("simpleBiz", &json!([])).await;
    let event = world.event().await;
    assert!(matches!(event, TunnelEvent::AllContainerStatuses(_)), "{event:?}");
    assert_eq!(base.command().await.0, "installBiz");
    world.install(&id).await.unwrap();
    assert_eq!(base.command().await.0, "installBiz", "it is sent again only because it was asked for again");
}
