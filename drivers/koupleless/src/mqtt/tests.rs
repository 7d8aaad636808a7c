//! Tests of commands that are not sent, or not confirmed.

use std::sync::Arc;

use serde_json::json;
use staffetta_driver::RequestLog;
use staffetta_driver::tunnel::OperationResponseResult::Unknown;
use staffetta_driver::tunnel::TunnelEvent;
use staffetta_virtual_node::vnode::{TunnelLimits, channel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::*;

fn cart() -> Container {
    let env = json!([{ "name": "BIZ_VERSION", "value": "1" }]);
    let cart = json!({ "name": "cart", "image": "https://example.com/cart.jar", "env": env });
    serde_json::from_value(cart).unwrap()
}

/// Records a base that has reported its modules, and is not to be asked for them.
fn has_reported(tunnel: &MqttTunnel, base: &NodeId) {
    let mut subscriptions = tunnel.state.subscriptions.lock();
    subscriptions.start(base);
    subscriptions.next_query(Instant::now());
    subscriptions.reported(base);
}

#[tokio::test]
async fn a_command_that_cannot_be_queued_leaves_no_record_and_is_not_under_way() {
    let (tunnel, base) = (MqttTunnel::new(MqttTunnelOptions::default()), "base-1".parse().unwrap());
    let cart = cart();
    has_reported(&tunnel, &base);
    let log = Arc::new(RequestLog::default());
    let load = || log.collect(tunnel.start_container(&base, &PodKey::All, &cart));
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("the tunnel does not run"), "{error}");

    let (sender, _receiver) = channel(TunnelLimits::default());
    let (topics, changes) = (Topics::new("dev").unwrap(), JoinSet::new());
    *tunnel.state.running.lock() = Some(RunningTunnel { topics, sender, changes });
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("there is no connection"), "{error}");

    // A connection that sends nothing.
    let (client, _events) = link::open(&tunnel.state.options, None, "test");
    *tunnel.state.link.lock() = Some(client);
    while tunnel.fetch_health_data(&base).await.is_ok() {}
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("cannot be queued"), "{error}");
    let end = || tunnel.state.operations.answered(&base, ArkletCommand::InstallBiz, &module::key_of(&cart));
    assert!(!end() && log.is_empty(), "{:?}", log.requests());

    let (client, _events) = link::open(&tunnel.state.options, None, "test");
    *tunnel.state.link.lock() = Some(client);
    load().await.unwrap();
    assert!(end(), "it is under way");
    let requests = log.requests();
    assert_eq!((requests.len(), requests[0].path.as_str()), (1, "koupleless_dev/base-1/installBiz"));
}

/// Reads an MQTT packet, and returns its type and the rest of it. The length is in groups of seven bits, the lowest first (MQTT 3.1.1,
/// 2.2.3).
async fn packet(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let kind = stream.read_u8().await.unwrap() >> 4;
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = usize::from(stream.read_u8().await.unwrap());
        length |= (byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await.unwrap();
    (kind, rest)
}

/// The type of a packet with a message.
const PUBLISH: u8 = 3;

/// Accepts a connection as a broker of this version.
async fn accept(listener: &TcpListener, version: MqttVersion) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    packet(&mut stream).await;
    let accepted: &[u8] = match version {
        MqttVersion::V3 => &[0x20, 2, 0, 0],
        MqttVersion::V5 => &[0x20, 3, 0, 0, 0],
    };
    stream.write_all(accepted).await.unwrap();
    stream
}

/// Accepts connections as a broker of this version, and closes each when a command arrives on it.
async fn close_at_commands(listener: TcpListener, version: MqttVersion) {
    loop {
        let mut stream = accept(&listener, version).await;
        while packet(&mut stream).await.0 != PUBLISH {}
    }
}

/// Returns options for a broker of this version at a port of 127.0.0.1, without TLS.
fn options(listener: &TcpListener, version: MqttVersion) -> MqttTunnelOptions {
    let port = std::num::NonZeroU16::new(listener.local_addr().unwrap().port());
    let broker = "127.0.0.1".to_owned();
    MqttTunnelOptions { broker, port, version, tls: false, ..MqttTunnelOptions::default() }
}

#[tokio::test]
async fn a_broker_that_does_not_read_for_a_while_gets_all_commands_later() {
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tunnel = Arc::new(MqttTunnel::new(options(&listener, version)));
        let (sender, _receiver) = channel(TunnelLimits::default());
        let started = Arc::clone(&tunnel);
        let _running =
            AbortOnDropHandle::new(tokio::spawn(async move { started.start("dev", "dev", sender).await }));
        let mut stream = accept(&listener, version).await;
        while !tunnel.connected() {
            tokio::task::yield_now().await;
        }
        // More than the operating system buffers.
        let bodies: Vec<_> = (0..32_u8).map(|number| vec![number; 1 << 20]).collect();
        let base = "b".parse().unwrap();
        for body in &bodies {
            tunnel.state.publish(&base, ArkletCommand::Health, body.clone()).unwrap();
        }
        tunnel.state.publish(&base, ArkletCommand::Health, b"last".to_vec()).unwrap();
        tokio::time::pause();
        // That of MQTT 3.1.1 gives a connection up if it cannot send for 5 s.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tokio::time::resume();
        let mut received = Vec::new();
        loop {
            let (kind, rest) = packet(&mut stream).await;
            if kind == PUBLISH && rest.ends_with(b"last") {
                break;
            }
            received.extend(rest.last().filter(|_| kind == PUBLISH).copied());
        }
        assert_eq!(received, (0..32).collect::<Vec<u8>>(), "{version:?}");
    }
}

#[tokio::test]
async fn a_connection_to_a_broker_that_does_not_read_any_more_ends() {
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (keep_alive_s, second) = (1.try_into().unwrap(), 1000.try_into().unwrap());
        let options = options(&listener, version);
        let options = MqttTunnelOptions { keep_alive_s, connect_timeout_ms: second, ..options };
        let tunnel = Arc::new(MqttTunnel::new(options));
        let (sender, _receiver) = channel(TunnelLimits::default());
        let started = Arc::clone(&tunnel);
        let _running =
            AbortOnDropHandle::new(tokio::spawn(async move { started.start("dev", "dev", sender).await }));
        let _stream = accept(&listener, version).await;
        while !tunnel.connected() {
            tokio::task::yield_now().await;
        }
        // More than the operating system buffers.
        let base = "b".parse().unwrap();
        for _ in 0..32 {
            tunnel.state.publish(&base, ArkletCommand::Health, vec![0; 1 << 20]).unwrap();
        }
        tokio::time::pause();
        while tunnel.connected() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::resume();
        assert_eq!(tunnel.connection_error().as_deref(), Some("no progress for 3 s"), "{version:?}");
    }
}

#[tokio::test]
async fn a_command_fails_at_once_if_the_connection_ends_before_the_broker_confirmed_it() {
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (tunnel, base) = (Arc::new(MqttTunnel::new(options(&listener, version))), "b".parse().unwrap());
        let _broker = AbortOnDropHandle::new(tokio::spawn(close_at_commands(listener, version)));
        let (sender, mut receiver) = channel(TunnelLimits::default());
        let started = Arc::clone(&tunnel);
        let _running =
            AbortOnDropHandle::new(tokio::spawn(async move { started.start("dev", "dev", sender).await }));
        while let Err(error) = tunnel.start_container(&base, &PodKey::All, &cart()).await {
            if error.reason() == Reason::Awaited {
                has_reported(&tunnel, &base);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (_, event) = receiver.recv().await.unwrap();
        let TunnelEvent::StartContainerResponse(answer) = event else { panic!("{event:?}") };
        assert_eq!(answer.result, Unknown);
        assert!(answer.message.contains("the connection to the broker ended"), "{}", answer.message);
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection_with_its_size_and_the_remedy_and_the_next_one_works()
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tunnel = Arc::new(MqttTunnel::new(options(&listener, MqttVersion::V3)));
    let (sender, _receiver) = channel(TunnelLimits::default());
    let started = Arc::clone(&tunnel);
    let _running =
        AbortOnDropHandle::new(tokio::spawn(async move { started.start("dev", "dev", sender).await }));
    let mut stream = accept(&listener, MqttVersion::V3).await;
    // The begin of a message of 17 MiB.
    stream.write_all(&[PUBLISH << 4 | 2, 0x80, 0x80, 0xc0, 8]).await.unwrap();
    let error = loop {
        tokio::task::yield_now().await;
        if let Some(error) = tunnel.connection_error() {
            break error;
        }
    };
    assert!(error.contains("17825792 bytes") && error.contains("`vnode_mqtt.version`"), "{error}");
    let _stream = accept(&listener, MqttVersion::V3).await;
    while !tunnel.connected() {
        tokio::task::yield_now().await;
    }
}
