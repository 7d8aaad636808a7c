//! One connection to a broker, in either version of MQTT.
//!
//! The crates of the two versions differ in types only. A connection that fails is not resumed but replaced, so nothing that was
//! queued for the broker during an outage is sent after it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::options::{MqttTunnelOptions, MqttVersion};

/// The maximum number of requests that wait to be sent to the broker.
const WAITING_REQUESTS: usize = 1024;

/// The maximum size of a packet over MQTT 3.1.1, in bytes. A larger one ends the connection, so the limit is far above that of a
/// report, which is checked afterwards. Over MQTT 5, the broker is told the limit and drops larger packets.
const MAX_PACKET_V3: usize = 16 << 20;

/// The maximum size of a packet over MQTT 5, in bytes: a report of the maximum size with its topic.
const MAX_PACKET_V5: u32 = (1 << 20) + 1024;

/// An error of a connection in either version of MQTT.
pub(super) type LinkError = Box<dyn Error + Send + Sync>;

/// The sending end of a connection to the broker.
#[derive(Clone, Debug)]
pub(super) enum LinkClient {
    /// A connection with MQTT 3.1.1.
    V3(mqtt3::AsyncClient),
    /// A connection with MQTT 5.
    V5(mqtt5::AsyncClient),
}

/// The receiving end of a connection to the broker. The connection makes progress only while
/// [`next`](Self::next) is polled.
pub(super) enum LinkEvents {
    /// A connection with MQTT 3.1.1.
    V3(Box<mqtt3::EventLoop>),
    /// A connection with MQTT 5.
    V5(Box<mqtt5::EventLoop>),
}

/// The handle of a message that was queued for the broker, which tells if the broker confirms it.
pub(super) enum SentCommand {
    /// Over MQTT 3.1.1.
    V3(mqtt3::PublishNotice),
    /// Over MQTT 5.
    V5(mqtt5::PublishNotice),
}

/// The reason why a broker has not confirmed a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unconfirmed {
    /// The broker refused the message, for this reason.
    Refused(String),
    /// The connection ended before the broker confirmed the message. The broker may have delivered it.
    Disconnected,
}

impl SentCommand {
    /// Waits until it is certain that the broker does not confirm the message, and returns the reason. Never completes if the broker
    /// confirms it. Over MQTT 3.1.1, a broker cannot refuse a message.
    pub(super) async fn unconfirmed(self) -> Unconfirmed {
        let unconfirmed = match self {
            Self::V3(notice) => notice.wait_completion_async().await.err().map(|_| Unconfirmed::Disconnected),
            Self::V5(notice) => notice.wait_completion_async().await.err().map(|error| match error {
                mqtt5::PublishNoticeError::V5PubAck(reason) => Unconfirmed::Refused(format!("{reason:?}")),
                _ => Unconfirmed::Disconnected,
            }),
        };
        match unconfirmed {
            Some(unconfirmed) => unconfirmed,
            None => std::future::pending().await,
        }
    }
}

/// An event of a connection.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// The broker accepted the log-in.
    Connected,
    /// The broker answered a request to subscribe to topics, and refused this many of them.
    Subscribed { refused: usize },
    /// A message arrived. `retained` is `true` if the broker had stored it, so that it may be old.
    Message { topic: Vec<u8>, payload: Vec<u8>, retained: bool },
}

/// Returns the client that queues requests to the broker, and the source of the events of the same connection. The connection is opened
/// by the first call of [`LinkEvents::next`].
pub(super) fn open(
    options: &MqttTunnelOptions,
    tls: Option<&Arc<ClientConfig>>,
    client_id: &str,
) -> (LinkClient, LinkEvents) {
    let port = options.port.map_or(if tls.is_some() { 8883 } else { 1883 }, std::num::NonZeroU16::get);
    let (host, keep_alive) = (options.broker.as_str(), options.keep_alive_s.get());
    let password = options.password.as_ref().map(|password| password.expose().to_owned()).unwrap_or_default();
    match options.version {
        MqttVersion::V3 => {
            let mut settings = mqtt3::MqttOptions::new(client_id, mqtt3::Broker::tcp(host, port));
            settings.set_keep_alive(keep_alive).set_clean_session(true);
            settings.set_max_packet_size(MAX_PACKET_V3, MAX_PACKET_V3);
            if let Some(tls) = tls {
                let tls = mqtt3::TlsConfiguration::Rustls(Arc::clone(tls));
                settings.set_transport(mqtt3::Transport::tls_with_config(tls));
            }
            if !options.username.is_empty() {
                settings.set_credentials(options.username.as_str(), password);
            }
            let builder = mqtt3::AsyncClient::builder(settings).capacity(WAITING_REQUESTS);
            let (client, events) = builder.build();
            (LinkClient::V3(client), LinkEvents::V3(Box::new(events)))
        }
        MqttVersion::V5 => {
            let mut settings = mqtt5::MqttOptions::new(client_id, mqtt5::Broker::tcp(host, port));
            settings.set_keep_alive(keep_alive).set_clean_start(true);
            settings.set_max_packet_size(Some(MAX_PACKET_V5));
            if let Some(tls) = tls {
                let tls = mqtt5::TlsConfiguration::Rustls(Arc::clone(tls));
                settings.set_transport(mqtt5::Transport::tls_with_config(tls));
            }
            if !options.username.is_empty() {
                settings.set_credentials(options.username.as_str(), password);
            }
            let builder = mqtt5::AsyncClient::builder(settings).capacity(WAITING_REQUESTS);
            let (client, events) = builder.build();
            (LinkClient::V5(client), LinkEvents::V5(Box::new(events)))
        }
    }
}

impl LinkClient {
    /// Queues a message with `QoS` 1 that is not retained, and returns a handle that tells if the broker does not confirm it. Over MQTT 5,
    /// the broker drops it after `expiry` (at least a second). Fails if [`WAITING_REQUESTS`] requests wait to be sent, or if the
    /// [`LinkEvents`] of the connection were dropped.
    pub(super) fn publish(
        &self,
        topic: String,
        payload: Vec<u8>,
        expiry: Duration,
    ) -> Result<SentCommand, LinkError> {
        match self {
            Self::V3(client) => {
                let options = mqtt3::PublishOptions::new(mqtt3::QoS::AtLeastOnce);
                Ok(SentCommand::V3(client.try_publish_tracked(topic, payload, options)?))
            }
            Self::V5(client) => {
                let seconds = u32::try_from(expiry.as_secs().max(1)).unwrap_or(u32::MAX);
                let properties = mqtt5::PublishProperties {
                    message_expiry_interval: Some(seconds),
                    ..mqtt5::PublishProperties::default()
                };
                let options = mqtt5::PublishOptions::new(mqtt5::QoS::AtLeastOnce).properties(properties);
                Ok(SentCommand::V5(client.try_publish_tracked(topic, payload, options)?))
            }
        }
    }

    /// Queues the request to subscribe to these topic filters with `QoS` 1. The answer is an event: [`LinkEvent::Subscribed`].
    pub(super) async fn subscribe(&self, filters: Vec<String>) -> Result<(), LinkError> {
        match self {
            Self::V3(client) => {
                let filter = |filter| mqtt3::SubscribeFilterInput::new(filter, mqtt3::QoS::AtLeastOnce);
                client.subscribe_many(filters.into_iter().map(filter)).await.map_err(Into::into)
            }
            Self::V5(client) => {
                let filter = |filter| mqtt5::SubscribeFilterInput::new(filter, mqtt5::QoS::AtLeastOnce);
                client.subscribe_many(filters.into_iter().map(filter)).await.map_err(Into::into)
            }
        }
    }

    /// Queues the request to end the subscriptions to these topic filters.
    pub(super) async fn unsubscribe(&self, filters: Vec<String>) -> Result<(), LinkError> {
        match self {
            Self::V3(client) => client.unsubscribe_many(filters).await.map_err(Into::into),
            Self::V5(client) => client.unsubscribe_many(filters).await.map_err(Into::into),
        }
    }
}

impl LinkEvents {
    /// Waits for the next event of the connection, and returns it. After an error, the connection must be replaced. It is also an error if
    /// nothing was sent or received for `limit`, because a broker that stops reading stops the keep-alive, too. `limit` must be longer than
    /// the keep-alive.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<LinkEvent, LinkError> {
        let stalled = |_: Elapsed| format!("no progress for {} s", limit.as_secs_f32());
        loop {
            match self {
                Self::V3(events) => match timeout(limit, poll_v3(events)).await.map_err(stalled)?? {
                    mqtt3::Event::Incoming(mqtt3::Packet::ConnAck(_)) => return Ok(LinkEvent::Connected),
                    mqtt3::Event::Incoming(mqtt3::Packet::SubAck(answer)) => {
                        let granted = |code| matches!(code, &mqtt3::SubscribeReasonCode::Success(_));
                        let refused = answer.return_codes.iter().filter(|code| !granted(code)).count();
                        return Ok(LinkEvent::Subscribed { refused });
                    }
                    mqtt3::Event::Incoming(mqtt3::Packet::Publish(message)) => {
                        let (topic, payload) = (message.topic.to_vec(), message.payload.to_vec());
                        return Ok(LinkEvent::Message { topic, payload, retained: message.retain });
                    }
                    _ => {}
                },
                Self::V5(events) => match timeout(limit, events.poll()).await.map_err(stalled)?? {
                    mqtt5::Event::Incoming(mqtt5::Packet::ConnAck(_)) => return Ok(LinkEvent::Connected),
                    mqtt5::Event::Incoming(mqtt5::Packet::SubAck(answer)) => {
                        let granted = |code| matches!(code, &mqtt5::SubscribeReasonCode::Success(_));
                        let refused = answer.return_codes.iter().filter(|code| !granted(code)).count();
                        return Ok(LinkEvent::Subscribed { refused });
                    }
                    mqtt5::Event::Incoming(mqtt5::Packet::Publish(message)) => {
                        let (topic, payload) = (message.topic.to_vec(), message.payload.to_vec());
                        return Ok(LinkEvent::Message { topic, payload, retained: message.retain });
                    }
                    _ => {}
                },
            }
        }
    }
}

/// Polls a connection over MQTT 3.1.1. The error of a message that is too large names its size and the remedy. The topic is not known,
/// because nothing of the message but its length was read.
async fn poll_v3(events: &mut mqtt3::EventLoop) -> Result<mqtt3::Event, LinkError> {
    use mqtt3::{ConnectionError::MqttState, StateError::Deserialization};
    match events.poll().await {
        Err(MqttState(Deserialization(mqtt3::mqttbytes::Error::PayloadSizeLimitExceeded(size)))) => Err(format!(
            "a message of {size} bytes arrived, and over MQTT 3.1.1 one of more than {MAX_PACKET_V3} ends the connection: \
             limit the size of messages at the broker, or set `vnode_mqtt.version` to \"5\""
        )
        .into()),
        polled => Ok(polled?),
    }
}
