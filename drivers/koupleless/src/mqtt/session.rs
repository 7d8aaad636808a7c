//! One connection of the tunnel to its broker.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::ClientConfig;
use staffetta_driver::tunnel::{NodeId, QueryBaselineRequest, TunnelSender};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::link::{self, LinkClient, LinkError, LinkEvent, LinkEvents};
use super::message::{self, BaseMessage, DropReason};
use super::options::MqttTunnelOptions;
use super::subscriptions::SubscriptionChange;
use super::topics::Topics;
use super::{KEY, MqttState};
use crate::lock::lock;
use crate::module::Module;
use crate::operations::{ArkletCommand, report};
use crate::options::milliseconds;

/// The maximum number of baseline queries that wait for their answer at the same time.
const BASELINE_QUERIES: usize = 64;

/// The maximum time between two queries after a reconnect.
const MAX_PACE: Duration = Duration::from_millis(100);

/// Connects to the broker and serves the connection. Returns how it ended: an error, and `true` if it had been established.
pub(super) async fn run(
    state: &Arc<MqttState>,
    topics: &Topics,
    tls: Option<&Arc<ClientConfig>>,
    client_id: &str,
    sender: &TunnelSender,
) -> (LinkError, bool) {
    let (client, mut events) = link::open(&state.options, tls, client_id);
    let limit = milliseconds(state.options.connect_timeout_ms);
    match tokio::time::timeout(limit, events.next()).await {
        Ok(Ok(LinkEvent::Connected)) => {}
        Ok(Ok(other)) => return (format!("unexpected {other:?} before the log-in").into(), false),
        Ok(Err(error)) => return (error, false),
        Err(_) => return (format!("no answer within {} s", limit.as_secs_f32()).into(), false),
    }
    info!(tunnel = KEY, broker = state.options.broker, "connected to the broker");
    lock(&state.subscriptions).connected();
    *lock(&state.connection_error) = None;
    *lock(&state.link) = Some(client.clone());
    let _connected = DisconnectOnDrop(state);
    let ended = tokio::select! {
        Err(error) = receive(state, topics, &client, &mut events, sender) => error,
        Err(error) = subscribe(state, topics, &client) => error,
    };
    (ended, true)
}

/// Receives reports until the connection ends.
async fn receive(
    state: &Arc<MqttState>,
    topics: &Topics,
    client: &LinkClient,
    events: &mut LinkEvents,
    sender: &TunnelSender,
) -> Result<Infallible, LinkError> {
    let (mut baselines, mut asking) = (JoinSet::new(), HashSet::new());
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            Some(answered) = baselines.join_next() => {
                if let Ok(base) = answered {
                    asking.remove(&base);
                }
                continue;
            }
        };
        match event {
            LinkEvent::Connected | LinkEvent::Refused(0) => {}
            LinkEvent::Refused(count) => {
                error!(tunnel = KEY, count, "the broker refuses subscriptions; check the rights of the user");
            }
            LinkEvent::Message { topic, payload, retained } => {
                let read = read(&state.options, topics, &topic, &payload, retained);
                let passed = read.and_then(|(base, message)| match message {
                    BaseMessage::Baseline(request) => {
                        if asking.len() >= BASELINE_QUERIES || !asking.insert(base.clone()) {
                            return Err(DropReason::Overload("the query waits behind others".to_owned()));
                        }
                        let (client, sender) = (client.clone(), sender.clone());
                        let topic = topics.baseline(&base);
                        let expiry = milliseconds(state.options.operation_timeout_ms);
                        baselines.spawn(async move {
                            let answered = answer_baseline(&client, &sender, &base, request, topic, expiry);
                            if let Err(error) = answered.await {
                                warn!(%base, error, "a base does not get its baseline");
                            }
                            base
                        });
                        Ok(())
                    }
                    other => pass_on(state, sender, &base, other),
                });
                if let Err(reason) = passed {
                    lock(&state.dropped).record(&topic, &reason);
                }
            }
        }
    }
}

fn read(
    options: &MqttTunnelOptions,
    topics: &Topics,
    topic: &[u8],
    payload: &[u8],
    retained: bool,
) -> Result<(NodeId, BaseMessage), DropReason> {
    let (base, kind) = topics.parse(topic).ok_or(DropReason::Topic)?;
    if retained {
        return Err(DropReason::Retained);
    }
    let max_age = milliseconds(options.max_report_age_ms);
    let message = message::read(&base, kind, payload, Timestamp::now(), max_age)?;
    Ok((base, message))
}

/// Passes a report on to the receiver of the tunnel. An answer counts only if its command is under way.
fn pass_on(
    state: &MqttState,
    sender: &TunnelSender,
    base: &NodeId,
    message: BaseMessage,
) -> Result<(), DropReason> {
    let sent = match message {
        BaseMessage::Discovered(node) => sender.node_discovered(base, node),
        BaseMessage::Health(status) => sender.node_status(base, status),
        BaseMessage::Modules(statuses) => sender.all_container_statuses(base, statuses),
        BaseMessage::Operation(command, module, answer) => {
            if !lock(&state.operations).end(base, command, Some(&module)) {
                return Err(DropReason::NotUnderWay);
            }
            report(sender, base, command, answer)
        }
        BaseMessage::Baseline(_) => Ok(()),
    };
    sent.map_err(|error| DropReason::Overload(error.to_string()))
}

/// Asks for the baseline of a base and publishes it. Nothing is published if it is not known.
async fn answer_baseline(
    client: &LinkClient,
    sender: &TunnelSender,
    base: &NodeId,
    request: QueryBaselineRequest,
    topic: String,
    expiry: Duration,
) -> Result<(), LinkError> {
    let containers = sender.query_baseline(base, request).await?;
    let payload = serde_json::to_vec(&Module::of_all(&containers, base))?;
    client.publish(topic, payload, expiry)
}

/// Keeps the subscriptions up to date, and asks each base for its modules once it is subscribed.
async fn subscribe(state: &MqttState, topics: &Topics, client: &LinkClient) -> Result<Infallible, LinkError> {
    client.subscribe(topics.of_all_bases()).await?;
    let mut asked = Instant::now();
    loop {
        let change = lock(&state.subscriptions).next_change();
        let filters = |bases: Vec<NodeId>| bases.iter().flat_map(|base| topics.of_base(base)).collect();
        match change {
            Some(SubscriptionChange::Subscribe(bases)) => client.subscribe(filters(bases)).await?,
            Some(SubscriptionChange::Unsubscribe(bases)) => client.unsubscribe(filters(bases)).await?,
            None => {
                let (waiting, bases) = {
                    let subscriptions = lock(&state.subscriptions);
                    (subscriptions.queries() > 0, subscriptions.bases())
                };
                tokio::select! {
                    () = state.changed.notified() => {}
                    () = tokio::time::sleep_until(asked + pace(state, bases)), if waiting => {
                        asked = Instant::now();
                        let base = lock(&state.subscriptions).next_query();
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

/// Returns the time between two queries: all of them are spread over a period, and few of them take less.
fn pace(state: &MqttState, bases: usize) -> Duration {
    let bases = u32::try_from(bases).unwrap_or(u32::MAX).max(1);
    (milliseconds(state.options.resync_ms) / bases).min(MAX_PACE)
}

/// Forgets the connection when it is dropped.
struct DisconnectOnDrop<'a>(&'a MqttState);

impl Drop for DisconnectOnDrop<'_> {
    fn drop(&mut self) {
        *lock(&self.0.link) = None;
    }
}
