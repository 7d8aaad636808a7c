//! One connection of the tunnel to its broker, from the log-in to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::ClientConfig;
use staffetta_driver::tunnel::{NodeId, TunnelSender};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::baselines::BaselineQueries;
use super::link::{self, LinkClient, LinkError, LinkEvent, LinkEvents};
use super::message::{self, BaseMessage, DropReason};
use super::subscriptions::SubscriptionChange;
use super::topics::Topics;
use super::{KEY, MqttState};
use crate::clear_on_drop::ClearOnDrop;
use crate::clock::{boot_time, suspension_fence};
use crate::operations::{ArkletCommand, report};
use crate::options::milliseconds;

/// The maximum time between the queries of two bases for their modules, after a reconnect.
const MAX_PACE: Duration = Duration::from_millis(100);

/// Connects to the broker and serves the connection. Returns the error with which it ended, and `true` if the
/// log-in had succeeded.
pub(super) async fn run(
    state: &Arc<MqttState>,
    topics: &Topics,
    tls: Option<&Arc<ClientConfig>>,
    client_id: &str,
    sender: &TunnelSender,
) -> (LinkError, bool) {
    let (client, mut events) = link::open(&state.options, tls, client_id);
    let limit = milliseconds(state.options.connect_timeout_ms);
    match tokio::time::timeout(limit, events.next(limit)).await {
        Ok(Ok(LinkEvent::Connected)) => {}
        Ok(Ok(other)) => return (format!("unexpected {other:?} before the log-in").into(), false),
        Ok(Err(error)) => return (error, false),
        Err(_) => return (format!("no answer within {} s", limit.as_secs_f32()).into(), false),
    }
    info!(tunnel = KEY, broker = state.options.broker, "connected to the broker");
    state.subscriptions.lock().connected();
    *state.connection_error.lock() = None;
    let connection = CancellationToken::new();
    *state.connection.lock() = connection.clone();
    let _ended = connection.drop_guard();
    *state.link.lock() = Some(client.clone());
    let _connected = ClearOnDrop(&state.link);
    let awake = suspension_fence(state.options.send_limit, boot_time);
    let ended = tokio::select! {
        received = awake.run(receive(state, topics, &client, &mut events, sender)) => match received {
            Some(Err(error)) => error,
            Some(Ok(never)) => match never {},
            None => "this process was suspended; what it was about to send is of the past".into(),
        },
        Err(error) = subscribe(state, topics, &client) => error,
    };
    (ended, true)
}

/// Receives and processes reports until the connection ends, and returns its error. Wakes up five times per
/// [`send_limit`](super::MqttTunnelOptions::send_limit), so that a suspension of the process is noticed.
async fn receive(
    state: &Arc<MqttState>,
    topics: &Topics,
    client: &LinkClient,
    events: &mut LinkEvents,
    sender: &TunnelSender,
) -> Result<Infallible, LinkError> {
    let keep_alive = Duration::from_secs(state.options.keep_alive_s.get().into());
    let limit = keep_alive * 2 + milliseconds(state.options.connect_timeout_ms);
    let max_age = milliseconds(state.options.max_report_age_ms);
    let mut baselines = BaselineQueries::default();
    let mut polls = tokio::time::interval(state.options.send_limit / 5);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // One future until it ends: a request that it is sending is lost if it is dropped.
        let mut next = pin!(events.next(limit));
        let event = loop {
            tokio::select! {
                event = &mut next => break event?,
                _ = polls.tick() => {}
                () = baselines.ended() => {}
            }
        };
        match event {
            LinkEvent::Connected | LinkEvent::Subscribed { refused: 0 } => {}
            LinkEvent::Subscribed { refused } => {
                error!(
                    tunnel = KEY,
                    refused, "the broker refuses subscriptions; check the rights of the user"
                );
            }
            LinkEvent::Message { topic, payload, retained } => {
                let read = read(topics, &topic, &payload, retained, max_age);
                let passed = read.and_then(|(base, message, sent)| match message {
                    message if !state.subscriptions.lock().accept(&base, &message, sent, max_age) => {
                        Err("a newer one came before it".to_owned())
                    }
                    BaseMessage::Baseline(request) => {
                        let expiry = milliseconds(state.options.operation_timeout_ms);
                        let to = (topics.baseline(&base), expiry);
                        baselines.ask(base, request, to, client, sender)
                    }
                    other => pass_on(state, sender, &base, other),
                });
                if let Err(reason) = passed {
                    state.dropped.lock().record(&topic, reason);
                }
            }
        }
    }
}

/// Parses a message of a base. Fails for a topic that is not one of reports, for a retained message, which may be of any age, and for a
/// report that [`message::read`] drops.
fn read(
    topics: &Topics,
    topic: &[u8],
    payload: &[u8],
    retained: bool,
    max_age: Duration,
) -> Result<(NodeId, BaseMessage, Timestamp), DropReason> {
    let (base, kind) =
        topics.parse(topic).ok_or("its topic is not that of a report, or names no valid base")?;
    if retained {
        return Err("it was retained by the broker, so it is of the past".to_owned());
    }
    let (message, sent) = message::read(&base, kind, payload, Timestamp::now(), max_age)?;
    Ok((base, message, sent))
}

/// Passes a report on to the virtual-node handler. Fails, and drops the report, if it answers a command that is not in progress, or if the
/// handler does not accept it.
fn pass_on(
    state: &MqttState,
    sender: &TunnelSender,
    base: &NodeId,
    message: BaseMessage,
) -> Result<(), DropReason> {
    let is_report = matches!(message, BaseMessage::Modules(_));
    if !is_report && state.subscriptions.lock().heard(base, Instant::now()) {
        state.changed.notify_one();
    }
    let sent = match message {
        BaseMessage::Discovered(node) => sender.node_discovered(base, node),
        BaseMessage::Health(status) => sender.node_status(base, status),
        BaseMessage::Modules(statuses) => sender.all_container_statuses(base, statuses),
        BaseMessage::Operation(command, module, answer) => {
            if !state.operations.answered(base, command, &module) {
                return Err("nothing of the kind is under way: it is late, or came twice".to_owned());
            }
            report(sender, base, command, answer)
        }
        BaseMessage::Baseline(_) => Ok(()), // it is answered, not passed on
    };
    if is_report && sent.is_ok() {
        state.subscriptions.lock().reported(base);
    }
    sent.map_err(|error| error.to_string())
}

/// Keeps the subscriptions equal to the bases with a node, and asks each base for its modules once its topics are subscribed.
async fn subscribe(state: &MqttState, topics: &Topics, client: &LinkClient) -> Result<Infallible, LinkError> {
    client.subscribe(topics.of_all_bases()).await?;
    let mut asked = Instant::now();
    loop {
        let change = state.subscriptions.lock().next_change();
        let filters = |bases: Vec<NodeId>| bases.iter().flat_map(|base| topics.of_base(base)).collect();
        match change {
            Some(SubscriptionChange::Subscribe(bases)) => client.subscribe(filters(bases)).await?,
            Some(SubscriptionChange::Unsubscribe(bases)) => client.unsubscribe(filters(bases)).await?,
            None => {
                let (waiting, bases) = {
                    let subscriptions = state.subscriptions.lock();
                    (subscriptions.queries() > 0, subscriptions.bases())
                };
                tokio::select! {
                    () = state.changed.notified() => {}
                    () = tokio::time::sleep_until(asked + pace(state, bases)), if waiting => {
                        asked = Instant::now();
                        let base = state.subscriptions.lock().next_query(asked);
                        if let Some(base) = base
                            && let Err(error) = state.publish(&base, ArkletCommand::QueryAllBiz, b"{}".to_vec())
                        {
                            warn!(%base, %error, "a base is not asked for its modules after a reconnect");
                        }
                    }
                }
            }
        }
    }
}

/// Returns the time between the queries of two bases for their modules, at most [`MAX_PACE`]: those of all bases are spread over
/// [`resync_ms`](super::MqttTunnelOptions::resync_ms), or over less time if there are few bases.
fn pace(state: &MqttState, bases: usize) -> Duration {
    let bases = u32::try_from(bases).unwrap_or(u32::MAX).max(1);
    (milliseconds(state.options.resync_ms) / bases).min(MAX_PACE)
}
