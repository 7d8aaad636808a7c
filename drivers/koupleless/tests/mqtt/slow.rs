//! A broker that is slow and whose queues are full.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use staffetta_driver::tunnel::OperationResponseResult::Success;
use staffetta_driver::tunnel::{PodKey, Tunnel, TunnelEvent};
use staffetta_koupleless::{MqttTunnelOptions, MqttVersion};
use staffetta_koupleless_base::{BaseBroker, SimulatedBase, SimulatedBaseOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::broker::Broker;
use crate::world::{PATIENCE, World, cart, options};

/// The number of modules that are loaded at the same time.
const MODULES: usize = 12;

/// Passes connections on to `port` of loopback, with a delay before each piece of 256 bytes from there. Returns its own port.
async fn slow_way_to(port: u16) -> (u16, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let passing = async move {
        loop {
            let (mut near_read, mut near_write) = listener.accept().await.unwrap().0.into_split();
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut far_read, mut far_write) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
            tokio::spawn(async move {
                let mut piece = [0; 256];
                while let Ok(length @ 1..) = far_read.read(&mut piece).await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if near_write.write_all(&piece[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    };
    (own, AbortOnDropHandle::new(tokio::spawn(passing)))
}

/// Loads modules of a base that the broker reaches slowly, until all of them are loaded.
async fn full_queues(version: MqttVersion) {
    // One message at a time, and two in the queue of each client.
    let broker = Broker::configured(&["max_inflight_messages 1", "max_queued_messages 2"]);
    let operation_timeout_ms = NonZeroU64::new(3_000).unwrap();
    let mut world = World::start(MqttTunnelOptions { operation_timeout_ms, ..options(&broker, version) });
    world.connected().await;
    let (port, _passing) = slow_way_to(broker.port(false)).await;
    let to = BaseBroker { host: "127.0.0.1".to_owned(), port, environment: world.environment.clone() };
    let heartbeat = Duration::from_millis(500);
    let base = SimulatedBase::mqtt(SimulatedBaseOptions { heartbeat, ..SimulatedBaseOptions::default() }, to);
    let (id, event) = world.receiver.recv().await.unwrap();
    let TunnelEvent::NodeDiscovered(node) = event else { panic!("{event:?}") };
    world.tunnel.on_node_start(&id, &node).await;
    let event = world.event().await;
    assert!(matches!(event, TunnelEvent::AllContainerStatuses(_)), "{event:?}");

    let mut asked = BTreeMap::new();
    let (mut missing, mut failures): (Vec<_>, _) = ((0..MODULES).collect(), 0);
    while !missing.is_empty() {
        for number in &missing {
            let mut container = cart();
            container.name = format!("cart-{number}");
            world.tunnel.start_container(&id, &PodKey::All, &container).await.unwrap();
            *asked.entry(format!("cart-{number}:1.0.0")).or_insert(0) += 1;
        }
        for _ in 0..missing.len() {
            let answer = loop {
                match world.event().await {
                    TunnelEvent::StartContainerResponse(answer) => break answer,
                    TunnelEvent::AllContainerStatuses(_) => {}
                    other => panic!("{other:?}"),
                }
            };
            if answer.result != Success {
                let said = format!("{}: {}", answer.reason, answer.message);
                let clear = ["no answer within 3 s", "the broker refuses the message", "REPEAT_BIZ"];
                assert!(clear.iter().any(|clear| said.contains(clear)), "{said}");
                failures += 1;
            }
        }
        let loaded: Vec<_> = base.modules().into_iter().map(|module| module.name).collect();
        missing.retain(|number| !loaded.contains(&format!("cart-{number}")));
    }
    assert!(failures > 0, "the queues of the broker were not full");
    for (module, asked) in asked {
        let received = base.operations().iter().filter(|operation| operation.module == module).count();
        assert!((1..=asked).contains(&received), "{module}: received {received} times, asked {asked} times");
    }
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_slow_broker_with_full_queues_loads_each_module_or_says_so_over_mqtt_3_1_1_on_a_real_broker() {
    tokio::time::timeout(PATIENCE, full_queues(MqttVersion::V3)).await.expect("all modules are loaded");
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_slow_broker_with_full_queues_loads_each_module_or_says_so_over_mqtt_5_on_a_real_broker() {
    tokio::time::timeout(PATIENCE, full_queues(MqttVersion::V5)).await.expect("all modules are loaded");
}
