//! The tunnel to Koupleless bases over MQTT.

mod baselines;
mod dropped;
mod link;
mod message;
mod options;
mod session;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tls;
mod topics;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use parking_lot::Mutex;
use staffetta_driver::tunnel::{NodeDescription, NodeId, PodKey, Tunnel, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason, RequestRecord};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info_span, warn};

use self::dropped::DroppedReports;
use self::link::{LinkClient, SentCommand, Unconfirmed};
pub use self::options::{MqttTunnelOptions, MqttVersion};
use self::subscriptions::Subscriptions;
use self::topics::Topics;
use crate::clear_on_drop::ClearOnDrop;
use crate::module::{self, Module};
use crate::operations::{ArkletCommand, Operations};
use crate::options::milliseconds;
use crate::wire::failed;

/// The name of the tunnel, which is the value of a label of each of its nodes.
const KEY: &str = "koupleless-mqtt";

/// The delay after the first failed connection to the broker. It doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The maximum delay after a failed connection to the broker.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The time between two log lines about dropped reports.
const DROPPED_PERIOD: Duration = Duration::from_secs(60);

/// The tunnel over MQTT, with the topics of Arklet.
///
/// The topics of a base begin with `koupleless_ENVIRONMENT/BASE/`, where `ENVIRONMENT` is in lower case. The broker must restrict
/// who publishes and subscribes, because some reports contain no id:
///
/// * A base may publish to `koupleless_ENVIRONMENT/BASE/base/#` and subscribe `koupleless_ENVIRONMENT/BASE/+` and
///   `koupleless_ENVIRONMENT/BASE/base/baseline`, where `BASE` is its user name. In mosquitto: `pattern write
///   koupleless_prod/%u/base/#`, `pattern read koupleless_prod/%u/+`, `pattern read koupleless_prod/%u/base/baseline`.
/// * The controller may publish to and subscribe `koupleless_ENVIRONMENT/#`.
/// * Over MQTT 3.1.1, limit the size of messages at the broker (in mosquitto `message_size_limit 1048576`): a packet of more than
///   16 MiB ends the connection.
///
/// Each connection begins without a session. After a reconnect, the tunnel subscribes everything again and asks each base for its modules,
/// spread over [`MqttTunnelOptions::resync_ms`]. A base that does not answer is asked again when another message of it arrives. Until it
/// has reported its modules, none of its modules is loaded or unloaded. Nothing that was to be sent during an outage is sent after it:
/// without a connection, requests fail.
#[derive(Debug)]
pub struct MqttTunnel {
    state: Arc<MqttState>,
}

/// The state of the tunnel, which its tasks share.
#[derive(Debug)]
struct MqttState {
    options: MqttTunnelOptions,
    /// The part of the state that exists only while the tunnel runs; `None` while it does not.
    running: Mutex<Option<RunningTunnel>>,
    /// The current connection; `None` while there is none.
    link: Mutex<Option<LinkClient>>,
    /// Cancelled when the current or last connection has ended.
    connection: Mutex<CancellationToken>,
    /// The error of the last connection; `None` while the tunnel is connected, and before the first error.
    connection_error: Mutex<Option<String>>,
    subscriptions: Mutex<Subscriptions>,
    /// Notified when a base was added or removed, or is to be asked for its modules again.
    changed: Notify,
    operations: Operations,
    dropped: Mutex<DroppedReports>,
}

/// The part of the tunnel's state that exists only while the tunnel runs.
#[derive(Debug)]
struct RunningTunnel {
    topics: Topics,
    sender: TunnelSender,
    /// The tasks that wait for the answers to commands that load or unload modules. They end with the tunnel. [`Operations`] limits their
    /// number.
    changes: JoinSet<()>,
}

impl MqttTunnel {
    /// Creates the tunnel, without connecting yet.
    pub fn new(options: MqttTunnelOptions) -> Self {
        let state = MqttState {
            options,
            running: Mutex::default(),
            link: Mutex::default(),
            connection: Mutex::default(),
            connection_error: Mutex::default(),
            subscriptions: Mutex::default(),
            changed: Notify::new(),
            operations: Operations::default(),
            dropped: Mutex::default(),
        };
        Self { state: Arc::new(state) }
    }

    /// Returns the error of the last connection; `None` while the tunnel is connected, and before the first error.
    pub fn connection_error(&self) -> Option<String> {
        self.state.connection_error.lock().clone()
    }

    /// Publishes the command that changes a module, and returns at once; the answer of the base arrives as a report. Fails if the
    /// container names no module, if the message cannot be queued, or if too many modules of the base are being changed. The error is
    /// [`Reason::Awaited`] until the base has reported its modules on this connection: a broker that was restarted would confirm and drop
    /// the message for a base that has not subscribed again, and a command would be repeated before the state of the base is known.
    fn change(
        &self,
        command: ArkletCommand,
        base: &NodeId,
        container: &Container,
    ) -> Result<(), DriverError> {
        let module = Module::of(container, command.step())?;
        let key = module.key();
        let body = serde_json::to_vec(&module)
            .map_err(|error| DriverError::new(Reason::Refused, command.step()).because(error))?;
        if self.connected() && !self.state.subscriptions.lock().has_reported(base) {
            let error = DriverError::new(Reason::Awaited, command.step());
            return Err(error
                .detail(format!("base {base} has not reported its modules since the broker was reached")));
        }
        // No answer to an earlier command is certain to come. The caller repeats it only after it has looked for its effect.
        self.state.operations.forget(base, &key);
        let under_way = self.state.operations.begin(base, command, Some(&key))?;
        let connection = self.state.connection.lock().clone();
        let sent = self.state.publish(base, command, body)?;
        let mut running = self.state.running.lock();
        let running = running.as_mut().ok_or_else(|| not_running(base, command))?;
        under_way.record(RequestRecord::start("PUBLISH", &running.topics.command(base, command), true));
        let (sender, base) = (running.sender.clone(), base.clone());
        let limit = milliseconds(self.state.options.operation_timeout_ms);
        while running.changes.try_join_next().is_some() {}
        running.changes.spawn(async move {
            let error = tokio::select! {
                biased;
                () = under_way.ended() => return,
                error = unanswered(sent, &connection, limit, &base, command) => error,
            };
            under_way.finish(&sender, failed(key, &error));
        });
        Ok(())
    }
}

#[async_trait]
impl Tunnel for MqttTunnel {
    fn key(&self) -> &str {
        KEY
    }

    fn ready(&self) -> bool {
        self.state.running.lock().is_some()
    }

    fn connected(&self) -> bool {
        self.state.link.lock().is_some()
    }

    fn dropped_reports(&self) -> u64 {
        self.state.dropped.lock().total()
    }

    async fn start(
        &self,
        client_id: &str,
        environment: &str,
        sender: TunnelSender,
    ) -> Result<(), DriverError> {
        let options = &self.state.options;
        let tls = if options.tls {
            Some(Arc::new(tls::config(options)?))
        } else {
            warn!(
                tunnel = KEY,
                broker = options.broker,
                "TLS is off: passwords and commands are sent in clear text"
            );
            None
        };
        let topics = Topics::new(environment)?;
        let running =
            RunningTunnel { topics: topics.clone(), sender: sender.clone(), changes: JoinSet::new() };
        *self.state.running.lock() = Some(running);
        let _stopped = ClearOnDrop(&self.state.running);
        let client_id = format!("{}@@@{client_id}", options.client_prefix);
        let connecting = async {
            let mut delay = FIRST_DELAY;
            loop {
                let (error, established) =
                    session::run(&self.state, &topics, tls.as_ref(), &client_id, &sender).await;
                if established {
                    delay = FIRST_DELAY;
                }
                *self.state.connection_error.lock() = Some(error.to_string());
                warn!(tunnel = KEY, broker = options.broker, %error, ?delay, "no connection to the broker; trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(MAX_DELAY);
            }
        };
        tokio::select! {
            never = connecting => never,
            never = log_dropped_reports(&self.state) => match never {},
        }
    }

    async fn on_node_start(&self, node: &NodeId, _: &NodeDescription) {
        self.state.subscriptions.lock().start(node);
        self.state.changed.notify_one();
    }

    async fn on_node_stop(&self, node: &NodeId) {
        self.state.operations.stop(node);
        self.state.subscriptions.lock().stop(node);
        self.state.changed.notify_one();
    }

    async fn fetch_health_data(&self, node: &NodeId) -> Result<(), DriverError> {
        self.state.publish(node, ArkletCommand::Health, b"{}".to_vec()).map(drop)
    }

    async fn query_all_container_status_data(&self, node: &NodeId) -> Result<(), DriverError> {
        self.state.publish(node, ArkletCommand::QueryAllBiz, b"{}".to_vec()).map(drop)
    }

    async fn start_container(
        &self,
        node: &NodeId,
        _: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.change(ArkletCommand::InstallBiz, node, container)
    }

    async fn activate_container(
        &self,
        node: &NodeId,
        _: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.change(ArkletCommand::SwitchBiz, node, container)
    }

    async fn shutdown_container(
        &self,
        node: &NodeId,
        _: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.change(ArkletCommand::UninstallBiz, node, container)
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        module::key_of(container)
    }
}

impl MqttState {
    /// Queues a command for a base. Fails without a connection to the broker: a command that waits for one could be obsolete when it is
    /// sent.
    fn publish(
        &self,
        base: &NodeId,
        command: ArkletCommand,
        body: Vec<u8>,
    ) -> Result<SentCommand, DriverError> {
        let unavailable = |detail: &str| unavailable(base, command, detail);
        let span = info_span!(
            "MQTT publish",
            otel.name = command.step(),
            otel.kind = "producer",
            base = base.as_str()
        );
        let _entered = span.enter();
        let topic = self.running.lock().as_ref().map(|running| running.topics.command(base, command));
        let topic = topic.ok_or_else(|| not_running(base, command))?;
        let link = self.link.lock().clone();
        let link = link.ok_or_else(|| unavailable("there is no connection to the broker"))?;
        // Over MQTT 5, a command that the base has not received expires before another replica may take the node.
        link.publish(topic, body, self.options.send_limit)
            .map_err(|error| unavailable(&format!("the request cannot be queued: {error}")))
    }
}

/// Returns the error of a command to a base for the reason `detail`.
fn unavailable(base: &NodeId, command: ArkletCommand, detail: &str) -> DriverError {
    DriverError::new(Reason::Unavailable, command.step()).detail(format!("base {base}: {detail}"))
}

/// Returns the error of a command while the tunnel does not run.
fn not_running(base: &NodeId, command: ArkletCommand) -> DriverError {
    unavailable(base, command, "the tunnel does not run")
}

/// Waits until a command counts as not answered, and returns the error: the broker refused the message, its connection ended (the broker
/// may have lost the message or the answer), or `limit` has passed.
async fn unanswered(
    sent: SentCommand,
    connection: &CancellationToken,
    limit: Duration,
    base: &NodeId,
    command: ArkletCommand,
) -> DriverError {
    let ended = async {
        tokio::select! {
            biased;
            unconfirmed = sent.unconfirmed() => unconfirmed,
            () = connection.cancelled() => Unconfirmed::Disconnected,
        }
    };
    match tokio::time::timeout(limit, ended).await {
        Ok(Unconfirmed::Refused(reason)) => {
            unavailable(base, command, &format!("the broker refuses the message: {reason}"))
        }
        Ok(Unconfirmed::Disconnected) => {
            unavailable(base, command, "the connection to the broker ended before an answer came")
                .maybe_applied()
        }
        Err(_) => {
            let detail = format!("no answer within {} s", limit.as_secs_f32());
            unavailable(base, command, &detail).maybe_applied()
        }
    }
}

/// Logs dropped reports, once in [`DROPPED_PERIOD`].
async fn log_dropped_reports(state: &MqttState) -> Infallible {
    let mut ticks = tokio::time::interval(DROPPED_PERIOD);
    loop {
        ticks.tick().await;
        if let Some((count, topic, reason)) = state.dropped.lock().take() {
            warn!(
                tunnel = KEY,
                count, topic, reason, "reports of bases were dropped; the latest one is shown"
            );
        }
    }
}
