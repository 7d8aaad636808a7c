//! The base over MQTT 3.1.1: its topics, which begin with `koupleless_ENVIRONMENT/BASE/`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use mqtt3::{
    AsyncClient, Broker, Event, EventLoop, MqttOptions, Packet, PublishOptions, QoS, SubscribeFilterInput,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::behaviour::AnswerFault;
use crate::command::BaseCommand;
use crate::process::{AnswerContent, BaseAnswer, BaseProcess};
use crate::response;

/// The delay before the base connects again.
const RECONNECT: Duration = Duration::from_millis(200);

/// The maximum size of a packet, in bytes: an oversized answer is sent too.
const MAX_PACKET: usize = 8 << 20;

/// The broker of a base, without TLS. The base logs in with its id as the user name and the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseBroker {
    /// The host name or address of the broker.
    pub host: String,
    /// The TCP port of the broker.
    pub port: u16,
    /// The environment, a part of the topics, which is used in lower case.
    pub environment: String,
}

/// The state of one start of the base.
#[derive(Default)]
struct BaseLife {
    /// The number of restarts before it.
    restarts: u64,
    /// `true` if the baseline was asked for.
    introduced: bool,
    /// The number of heartbeats.
    beats: u64,
}

/// One connection to the broker.
#[derive(Clone)]
struct BrokerConnection {
    process: Arc<BaseProcess>,
    client: AsyncClient,
    /// The first part of the topics, with a slash at the end.
    prefix: String,
    /// Messages that wait until the next answer was sent ([`AnswerFault::Reorder`]).
    reordered: Arc<Mutex<Vec<KindAndBytes>>>,
}

/// The kind of a report and its bytes.
type KindAndBytes = (&'static str, Vec<u8>);

/// Runs the base until the future is dropped.
pub(crate) async fn run(process: Arc<BaseProcess>, broker: BaseBroker) -> Infallible {
    let mut life = BaseLife::default();
    tokio::time::sleep(process.options.first_heartbeat).await;
    loop {
        let restarts = *process.restarts.borrow();
        if life.restarts != restarts {
            life = BaseLife { restarts, ..BaseLife::default() };
        }
        tokio::select! {
            () = connected(&process, &broker, &mut life) => {}
            () = process.ended() => {}
        }
        // The sender lives as long as `process`.
        let _ = process.behaviour.subscribe().wait_for(|behaviour| behaviour.reachable).await;
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Connects, and serves the connection until it fails.
async fn connected(process: &Arc<BaseProcess>, broker: &BaseBroker, life: &mut BaseLife) {
    let (identity, environment) = (&process.options.identity, broker.environment.to_ascii_lowercase());
    let address = Broker::tcp(broker.host.as_str(), broker.port);
    let mut settings = MqttOptions::new(format!("{environment}@@@{identity}"), address);
    settings.set_credentials(identity.as_str(), identity.clone()).set_clean_session(true);
    settings.set_max_packet_size(MAX_PACKET, MAX_PACKET);
    let (client, events) = AsyncClient::builder(settings).capacity(256).build();
    let prefix = format!("koupleless_{environment}/{identity}/");
    let process = Arc::clone(process);
    BrokerConnection { process, client, prefix, reordered: Arc::default() }.serve(events, life).await;
}

impl BrokerConnection {
    async fn serve(&self, mut events: EventLoop, life: &mut BaseLife) {
        let mut commands = JoinSet::new();
        let mut heartbeats = tokio::time::interval_at(Instant::now(), self.process.options.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut subscribed = false;
        loop {
            tokio::select! {
                event = events.poll() => match event {
                    Ok(Event::Incoming(Packet::ConnAck(_))) => {
                        let filters = ["+", "base/baseline"].map(|filter| {
                            SubscribeFilterInput::new(format!("{}{filter}", self.prefix), QoS::AtLeastOnce)
                        });
                        if self.client.try_subscribe_many(filters).is_err() {
                            return;
                        }
                    }
                    Ok(Event::Incoming(Packet::SubAck(_))) => {
                        subscribed = true;
                        self.introduce(life);
                    }
                    Ok(Event::Incoming(Packet::Publish(message))) => {
                        let (topic, body) = (message.topic.to_vec(), message.payload.to_vec());
                        let connection = self.clone();
                        commands.spawn(async move { connection.receive(&topic, &body).await });
                    }
                    Ok(_) => {}
                    Err(_) => return,
                },
                () = self.process.next_beat(&mut heartbeats), if subscribed => self.beat(life),
                Some(_) = commands.join_next() => {}
            }
        }
    }

    /// Asks for the baseline, once for each start of the base.
    fn introduce(&self, life: &mut BaseLife) {
        if self.process.options.asks_baseline && !std::mem::replace(&mut life.introduced, true) {
            let metadata = response::metadata(&self.process.options, &self.process.identity());
            self.publish("queryBaseline", response::enveloped(&metadata).to_string().into_bytes());
        }
    }

    fn beat(&self, life: &mut BaseLife) {
        let behaviour = self.process.behaviour.borrow().clone();
        if behaviour.reports {
            let (state, identity) = (behaviour.state_at(life.beats), self.process.identity());
            let status = response::heartbeat(&self.process.options, &identity, state, None);
            self.publish("heart", response::enveloped(&status).to_string().into_bytes());
        }
        life.beats += 1;
    }

    /// Executes a command, or starts with a baseline.
    async fn receive(&self, topic: &[u8], body: &[u8]) {
        let topic = String::from_utf8_lossy(topic);
        // Arklet drops what it cannot parse.
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
        let Some(name) = topic.strip_prefix(&self.prefix) else { return };
        if name == "base/baseline" {
            let modules = body.as_array().cloned().ok_or_else(|| "it is no array".to_owned());
            self.process.start_with(modules).await;
        } else if let Some(command) = BaseCommand::of(name)
            && let Some(answer) = self.process.execute(command, body.clone()).await
        {
            self.answer(command, &body, answer);
        }
    }

    /// Publishes the answer to a command. After a change, it publishes all modules too, as Arklet does.
    fn answer(&self, command: BaseCommand, request: &Value, answer: BaseAnswer) {
        let (kind, changed) = match command {
            BaseCommand::Health => ("health", false),
            BaseCommand::QueryAllBiz => ("simpleBiz", false),
            BaseCommand::InstallBiz | BaseCommand::UninstallBiz | BaseCommand::SwitchBiz => {
                ("bizOperation", true)
            }
        };
        let bytes = match answer.content {
            AnswerContent::Bytes(bytes) => bytes,
            AnswerContent::Response(response) => {
                let data = match command {
                    BaseCommand::Health => response,
                    BaseCommand::QueryAllBiz => self.modules(),
                    BaseCommand::InstallBiz | BaseCommand::UninstallBiz | BaseCommand::SwitchBiz => json!({
                        "command": command.name(), "bizName": request["bizName"],
                        "bizVersion": request["bizVersion"], "response": response,
                    }),
                };
                response::encode(response::enveloped(&data), answer.fault.as_ref())
            }
        };
        if answer.fault == Some(AnswerFault::Reorder) && self.reordered.lock().is_empty() {
            self.reordered.lock().push((kind, bytes));
            return;
        }
        if answer.fault == Some(AnswerFault::Duplicate) {
            self.publish(kind, bytes.clone());
        }
        self.publish(kind, bytes);
        let reordered = std::mem::take(&mut *self.reordered.lock());
        for (kind, bytes) in reordered {
            self.publish(kind, bytes);
        }
        if changed {
            self.publish("simpleBiz", response::enveloped(&self.modules()).to_string().into_bytes());
        }
    }

    fn modules(&self) -> Value {
        self.process.arklet.lock().modules().values().map(response::simple_biz).collect()
    }

    /// Publishes a report. It gets lost if the connection takes no more.
    fn publish(&self, kind: &str, payload: Vec<u8>) {
        let topic = format!("{}base/{kind}", self.prefix);
        let _ = self.client.try_publish(topic, payload, PublishOptions::new(QoS::AtLeastOnce));
    }
}
