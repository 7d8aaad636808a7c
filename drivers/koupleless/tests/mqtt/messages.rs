//! Bad messages of bases.

use serde_json::json;
use staffetta_driver::tunnel::{OperationResponseResult, Tunnel, TunnelEvent};
use staffetta_koupleless::MqttVersion;

use crate::base::{Base, operation};
use crate::broker::Broker;
use crate::world::{World, options};

/// Sends bad reports, then a good one, which must be the first that arrives.
async fn bad_reports(version: MqttVersion) {
    let broker = Broker::shared();
    let (mut world, base, _) = World::with_base(&broker, options(&broker, version)).await;
    for payload in ["", "{", "[]", "{\"publishTimestamp\":0,\"data\":[]}"] {
        base.publish("simpleBiz", payload.to_owned()).await;
    }
    let large =
        json!({ "publishTimestamp": jiff::Timestamp::now().as_millisecond(), "data": ["x".repeat(2 << 20)] });
    base.publish("simpleBiz", large.to_string()).await;
    let many = vec![json!({ "name": "cart", "version": "1", "state": "ACTIVATED" }); 2001];
    base.report("simpleBiz", &many.into()).await;
    base.report("unknown", &json!([])).await;
    let mut foreign = base.heartbeat();
    foreign["baseMetadata"]["identity"] = "base-2".into();
    base.report("heart", &foreign).await;
    base.report(
        "health",
        &json!({ "code": "SUCCESS", "data": { "healthData": {} }, "baseIdentity": "base-2" }),
    )
    .await;
    base.report("simpleBiz", &json!([{ "name": "cart", "version": "1", "state": "ACTIVATED" }])).await;
    let (id, event) = loop {
        let (id, event) = world.receiver.recv().await.unwrap();
        if !matches!(event, TunnelEvent::NodeDiscovered(_)) {
            break (id, event);
        }
        assert_eq!(id.as_str(), "base-1");
    };
    let TunnelEvent::AllContainerStatuses(all) = event else { panic!("{event:?}") };
    assert_eq!((id.as_str(), all.len()), ("base-1", 1));
    assert!(world.tunnel.connected());
    // A broker over MQTT 5 knows the maximum size of a message, and sends no larger one.
    let dropped = if version == MqttVersion::V3 { 8 } else { 7 };
    assert_eq!(world.tunnel.dropped_reports(), dropped);
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_that_floods_the_broker_keeps_no_other_from_loading_modules_on_a_real_broker() {
    let broker = Broker::private();
    let (mut world, mut base, id) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    let other = Base::connect(&broker, &world.environment, "base-2").await;
    let (other_id, node) = world.discover(&other).await;
    world.tunnel.on_node_start(&other_id, &node).await;
    let health = json!({ "code": "SUCCESS", "data": { "healthData": {} } });
    let flood = async {
        loop {
            other.heart().await;
            other.report("health", &health).await;
            other.publish("simpleBiz", "x".repeat(100_000)).await;
        }
    };
    let life = async {
        let (mut loaded, mut foreign) = (0, 0);
        while loaded < 50 || foreign < 100 {
            world.install(&id).await.unwrap();
            assert_eq!(base.command().await.0, "installBiz");
            base.report("bizOperation", &operation("installBiz", "SUCCESS")).await;
            loop {
                match world.receiver.recv().await.unwrap() {
                    (_, TunnelEvent::StartContainerResponse(answer)) => {
                        assert_eq!(answer.result, OperationResponseResult::Success, "{}", answer.message);
                        break loaded += 1;
                    }
                    (from, _) => foreign += u32::from(from.as_str() == "base-2"),
                }
            }
        }
    };
    tokio::select! {
        () = life => {}
        () = flood => {}
    }
    assert!(world.tunnel.dropped_reports() > 0);
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn bad_reports_are_dropped_and_keep_the_connection_over_mqtt_3_1_1_on_a_real_broker() {
    bad_reports(MqttVersion::V3).await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn bad_reports_are_dropped_and_keep_the_connection_over_mqtt_5_on_a_real_broker() {
    bad_reports(MqttVersion::V5).await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_message_above_the_limit_of_the_broker_ends_no_connection_on_a_real_broker() {
    let broker = Broker::configured(&["message_size_limit 1048576"]);
    let (mut world, mut base, id) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    base.publish("simpleBiz", "x".repeat(17 << 20)).await;
    world.report_modules(&base).await;
    world.tunnel.fetch_health_data(&id).await.unwrap();
    assert_eq!(base.command().await.0, "health", "a new connection asks for the modules first");
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_with_a_wrong_clock_is_alive_and_says_so_on_a_real_broker() {
    let broker = Broker::shared();
    let (mut world, base, _) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    let health = json!({ "code": "SUCCESS", "data": { "healthData": {} } });
    for (ahead, reason) in [(-15, "ClockBehind"), (3600, "ClockAhead"), (0, "ClockSynchronized")] {
        base.report("simpleBiz", &json!([])).await; // all heartbeats of the past arrive before
        assert!(matches!(world.event().await, TunnelEvent::AllContainerStatuses(_)));
        base.report_from_clock(ahead, "heart", &base.heartbeat()).await;
        let (_, event) = world.receiver.recv().await.unwrap();
        assert!(matches!(event, TunnelEvent::NodeDiscovered(_)), "{ahead}: {event:?}");
        base.report_from_clock(ahead, "health", &health).await;
        let TunnelEvent::NodeStatus(status) = world.event().await else { panic!("no health") };
        let reasons: Vec<_> =
            status.custom_conditions.iter().filter_map(|one| one.reason.as_deref()).collect();
        assert_eq!(reasons, [reason], "{ahead}");
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn reports_that_come_in_another_order_end_with_the_newest_on_a_real_broker() {
    let broker = Broker::shared();
    let (mut world, base, _) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    let modules = |count| json!(vec![json!({ "name": "cart", "version": "1", "state": "ACTIVATED" }); count]);
    for (ahead, count) in [(6, 2), (2, 3), (8, 4), (5, 5), (7, 6), (9, 7)] {
        base.report_from_clock(ahead, "simpleBiz", &modules(count)).await;
        if [2, 4, 7].contains(&count) {
            let TunnelEvent::AllContainerStatuses(all) = world.event().await else { panic!("no modules") };
            assert_eq!(all.len(), count, "an older report came through");
        }
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_base_publishes_to_its_own_topics_only_on_a_real_broker() {
    let broker = Broker::shared();
    let (mut world, base, _) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    let other = Base::connect(&broker, &world.environment, "base-2").await;
    let topic = format!("koupleless_{}/base-1/base/simpleBiz", world.environment);
    let sent = jiff::Timestamp::now().as_millisecond();
    let modules = json!([{ "name": "cart", "version": "1", "state": "ACTIVATED" }]);
    let report = json!({ "publishTimestamp": sent, "data": modules }).to_string();
    other.publish_to(&topic, report.clone(), false).await;
    world.discover(&other).await; // fails if the report arrives, which was sent before
    base.publish_to(&topic, report, false).await;
    assert!(matches!(world.event().await, TunnelEvent::AllContainerStatuses(_)));
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn no_command_is_retained_and_a_retained_report_is_dropped_on_a_real_broker() {
    let broker = Broker::private();
    let settings = options(&broker, MqttVersion::V3);
    let (mut world, mut base, id) = World::with_base(&broker, settings.clone()).await;
    world.install(&id).await.unwrap();
    assert_eq!(base.command().await.0, "installBiz");
    let topic = format!("koupleless_{}/base-1/base/heart", world.environment);
    let heartbeat =
        json!({ "publishTimestamp": jiff::Timestamp::now().as_millisecond(), "data": base.heartbeat() });
    base.publish_to(&topic, heartbeat.to_string(), true).await;
    world.discover(&base).await;

    let environment = world.environment.clone();
    drop((base, world));
    let mut base = Base::connect(&broker, &environment, "base-1").await;
    let mut world = World::start_in(settings, environment);
    world.connected().await;
    world.tunnel.on_node_start(&id, &crate::world::description()).await;
    base.queried().await;
    base.report("simpleBiz", &json!([])).await;
    let (_, event) = world.receiver.recv().await.unwrap();
    assert!(matches!(event, TunnelEvent::AllContainerStatuses(_)), "{event:?}");
}
