//! Connections to the broker: TLS, log-in, outages.

use std::num::{NonZeroU16, NonZeroU64};

use mqtt5::{AsyncClient, Event, MqttOptions, Packet, QoS};
use serde_json::json;
use staffetta_driver::Reason;
use staffetta_driver::app_hosting::Password;
use staffetta_driver::tunnel::OperationResponseResult::{Fail, Unknown};
use staffetta_driver::tunnel::Tunnel;
use staffetta_koupleless::{MqttTunnelOptions, MqttVersion};

use crate::base::{Base, operation};
use crate::broker::Broker;
use crate::world::{PATIENCE, World, options};

/// Returns options of the user `controller` with TLS and a client certificate.
fn secure(broker: &Broker, version: MqttVersion) -> MqttTunnelOptions {
    MqttTunnelOptions {
        port: NonZeroU16::new(broker.port(true)),
        tls: true,
        ca_file: Some(broker.pki("ca.crt")),
        cert_file: Some(broker.pki("client.crt")),
        key_file: Some(broker.pki("client.key")),
        ..options(broker, version)
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn tls_with_a_client_certificate_connects_in_both_versions_on_a_real_broker() {
    let broker = Broker::shared();
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let (world, _base, _id) = World::with_base(&broker, secure(&broker, version)).await;
        assert!(world.tunnel.connected() && world.tunnel.ready());
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_broker_that_cannot_be_verified_gets_no_password_on_a_real_broker() {
    let (broker, other) = (Broker::shared(), Broker::private());
    let mut settings = secure(&broker, MqttVersion::V3);
    settings.ca_file = Some(other.pki("ca.crt"));
    let said = World::start(settings).error().await;
    assert!(said.contains("UnknownIssuer") || said.contains("BadSignature"), "{said}");
    let mut settings = secure(&broker, MqttVersion::V5);
    settings.broker = "localhost".to_owned();
    let said = World::start(settings).error().await;
    assert!(said.contains("certificate not valid for name"), "{said}");
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_refused_log_in_is_an_error_without_the_password_on_a_real_broker() {
    let broker = Broker::shared();
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let settings =
            MqttTunnelOptions { password: Some(Password::new("hunter2")), ..options(&broker, version) };
        let world = World::start(settings);
        let said = world.error().await;
        assert!(said.to_lowercase().contains("authorized") && !said.contains("hunter2"), "{said}");
        assert!(world.tunnel.ready() && !world.tunnel.connected());
    }
    let mut without = secure(&broker, MqttVersion::V3);
    (without.cert_file, without.key_file) = (None, None);
    let said = World::start(without).error().await;
    assert!(said.to_lowercase().contains("certificate"), "{said}");
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_restart_of_the_broker_loses_no_subscription_and_replays_no_command_on_a_real_broker() {
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let broker = Broker::private();
        let (mut world, base, id) = World::with_base(&broker, secure(&broker, version)).await;
        broker.stop();
        drop(base);
        world.error().await;
        let refused = world.install(&id).await.unwrap_err();
        assert!(
            refused.reason() == Reason::Unavailable && refused.to_string().contains("no connection"),
            "{refused}"
        );
        assert_eq!(
            world.install(&id).await.unwrap_err().reason(),
            Reason::Unavailable,
            "it is not under way"
        );

        broker.start();
        world.connected().await;
        assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Awaited, "nobody would get it");
        let mut base = Base::connect(&broker, &world.environment, "base-1").await;
        // The broker may have got the first query before the base was there again.
        base.queried_at_heartbeats().await;
        world.report_modules(&base).await;
        world.tunnel.fetch_health_data(&id).await.unwrap();
        assert_eq!(base.command().await.0, "health", "a command of the past");
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_broker_that_hangs_refuses_what_is_too_much_and_repeats_nothing_on_a_real_broker() {
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let broker = Broker::private();
        let impatient = MqttTunnelOptions {
            keep_alive_s: NonZeroU16::new(2).unwrap(),
            operation_timeout_ms: NonZeroU64::new(10_000).unwrap(),
            ..options(&broker, version)
        };
        let (mut world, mut base, id) = World::with_base(&broker, impatient).await;
        broker.kill("STOP");
        world.install(&id).await.unwrap();
        let full = async {
            loop {
                if let Err(full) = world.tunnel.fetch_health_data(&id).await {
                    return full;
                }
                tokio::task::yield_now().await;
            }
        };
        let full = tokio::time::timeout(PATIENCE, full).await.expect("the queue is bounded");
        assert!(
            full.reason() == Reason::Unavailable && full.to_string().contains("cannot be queued"),
            "{full}"
        );
        world.error().await;
        broker.kill("CONT");
        world.connected().await;

        // The broker may have read the command from the connection that ended.
        let (mut installs, mut others) = (0, 0);
        let answer = loop {
            tokio::select! {
                (command, _) = base.command() => match command.as_str() {
                    "installBiz" => {
                        installs += 1;
                        base.report("bizOperation", &operation("installBiz", "SUCCESS")).await;
                    }
                    _ => others += 1,
                },
                (_, answer) = world.answer() => break answer,
            }
        };
        assert!(installs <= 1 && others < 1024, "{installs} {others}");
        assert!(installs == 1 || answer.result == Unknown, "{answer:?}");
        world.report_modules(&base).await;
        world.install(&id).await.expect("nothing is under way");
        while base.command().await.0 != "installBiz" {}
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_command_that_the_broker_refuses_fails_at_once_over_mqtt_5_on_a_real_broker() {
    let broker = Broker::shared();
    // This user may send nothing.
    let user = "observer".to_owned();
    let options = MqttTunnelOptions {
        username: user.clone(),
        password: Some(Password::new(&user)),
        ..options(&broker, MqttVersion::V5)
    };
    let mut world = World::start(options);
    let base = Base::connect(&broker, &world.environment, "base-1").await;
    let (id, node) = world.discover(&base).await;
    world.tunnel.on_node_start(&id, &node).await;
    world.report_modules(&base).await;
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert!(
        answer.message.ends_with("base base-1: the broker refuses the message: NotAuthorized"),
        "{answer:?}"
    );
    assert_eq!((answer.result, answer.reason.as_str()), (Fail, "DriverUnavailable"));
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_node_that_stops_is_unsubscribed_and_others_are_not_on_a_real_broker() {
    let broker = Broker::shared();
    let (mut world, base, id) = World::with_base(&broker, options(&broker, MqttVersion::V3)).await;
    let mut other = Base::connect(&broker, &world.environment, "base-2").await;
    let (other_id, node) = world.discover(&other).await;
    world.tunnel.on_node_stop(&id).await;
    world.tunnel.on_node_start(&other_id, &node).await;
    other.queried().await;
    base.report("simpleBiz", &json!([{ "name": "cart", "version": "1", "state": "ACTIVATED" }])).await;
    world.discover(&base).await; // fails if the report arrives, which was sent before
    world.report_modules(&other).await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_command_over_mqtt_5_expires_at_the_broker_on_a_real_broker() {
    let broker = Broker::shared();
    let (world, _base, id) = World::with_base(&broker, options(&broker, MqttVersion::V5)).await;
    let mut settings = MqttOptions::new("watching", mqtt5::Broker::tcp("127.0.0.1", broker.port(false)));
    settings.set_credentials("controller", "controller");
    let (client, mut events) = AsyncClient::builder(settings).capacity(10).build();
    client.subscribe(format!("koupleless_{}/base-1/+", world.environment), QoS::AtLeastOnce).await.unwrap();
    let mut expiries = Vec::new();
    while expiries.len() < 2 {
        match events.poll().await.unwrap() {
            Event::Incoming(Packet::SubAck(_)) => {
                world.tunnel.fetch_health_data(&id).await.unwrap();
                world.install(&id).await.unwrap();
            }
            Event::Incoming(Packet::Publish(message)) => {
                assert!(message.qos == QoS::AtLeastOnce && !message.retain);
                expiries.push(message.properties.unwrap().message_expiry_interval.unwrap());
            }
            _ => {}
        }
    }
    assert!(expiries.iter().all(|left| (1..=5).contains(left)), "{expiries:?}");
}
