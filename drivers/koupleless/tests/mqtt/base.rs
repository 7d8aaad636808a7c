//! A simulated base, which speaks MQTT 3.1.1 as Arklet does.

use std::time::Duration;

use mqtt3::{AsyncClient, Event, MqttOptions, Packet, PublishOptions, QoS};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::broker::Broker;

/// A simulated base.
pub(crate) struct Base {
    pub(crate) id: String,
    prefix: String,
    client: AsyncClient,
    received: mpsc::UnboundedReceiver<(String, Value)>,
    _polling: AbortOnDropHandle<()>,
}

impl Base {
    /// Connects a base, and returns once it is subscribed.
    pub(crate) async fn connect(broker: &Broker, environment: &str, id: &str) -> Self {
        let address = mqtt3::Broker::tcp("127.0.0.1", broker.port(false));
        let mut options = MqttOptions::new(format!("{environment}@@@{id}"), address);
        options.set_credentials(id, id.to_owned()).set_max_packet_size(32 << 20, 32 << 20);
        let (client, mut events) = AsyncClient::builder(options).capacity(100).build();
        let prefix = format!("koupleless_{environment}/{id}/");
        for filter in ["+", "base/baseline"] {
            client.subscribe(format!("{prefix}{filter}"), QoS::AtLeastOnce).await.unwrap();
        }
        let (sender, received) = mpsc::unbounded_channel();
        let (subscribed, mut subscriptions) = mpsc::unbounded_channel();
        let own = prefix.clone();
        let polling = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::SubAck(_)) => drop(subscribed.send(())),
                    Event::Incoming(Packet::Publish(message)) => {
                        assert!(!message.retain, "a retained command");
                        let topic = String::from_utf8(message.topic.to_vec()).unwrap();
                        let body = serde_json::from_slice(&message.payload).unwrap();
                        let _ = sender.send((topic.strip_prefix(&own).unwrap().to_owned(), body));
                    }
                    _ => {}
                }
            }
        });
        for _ in 0..2 {
            subscriptions.recv().await.unwrap();
        }
        let id = id.to_owned();
        Self { id, prefix, client, received, _polling: AbortOnDropHandle::new(polling) }
    }

    /// Returns the next command with its body. Queries of modules are skipped, as each heartbeat before the first report causes one.
    pub(crate) async fn command(&mut self) -> (String, Value) {
        loop {
            match self.received.recv().await.unwrap() {
                (command, _) if command == "queryAllBiz" => {}
                command => return command,
            }
        }
    }

    /// Waits for a query of modules, which must be the next command.
    pub(crate) async fn queried(&mut self) {
        assert_eq!(self.received.recv().await.unwrap().0, "queryAllBiz");
    }

    /// Sends heartbeats until a query of modules comes, which must be the next command.
    pub(crate) async fn queried_at_heartbeats(&mut self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                Some((command, _)) = self.received.recv() => return assert_eq!(command, "queryAllBiz"),
                _ = ticks.tick() => self.heart().await,
            }
        }
    }

    /// Publishes a report in its envelope.
    pub(crate) async fn report(&self, kind: &str, data: &Value) {
        self.report_from_clock(0, kind, data).await;
    }

    /// Publishes a report in its envelope, by a clock that is this many seconds ahead.
    pub(crate) async fn report_from_clock(&self, ahead: i64, kind: &str, data: &Value) {
        let sent = jiff::Timestamp::now().as_millisecond() + 1000 * ahead;
        self.publish(kind, json!({ "publishTimestamp": sent, "data": data }).to_string()).await;
    }

    /// Publishes a payload as it is.
    pub(crate) async fn publish(&self, kind: &str, payload: String) {
        self.publish_to(&format!("{}base/{kind}", self.prefix), payload, false).await;
    }

    /// Publishes a payload to any topic.
    pub(crate) async fn publish_to(&self, topic: &str, payload: String, retained: bool) {
        let options = PublishOptions::new(QoS::AtLeastOnce).retain(retained);
        self.client.publish(topic, payload, options).await.unwrap();
    }

    /// Publishes a heartbeat.
    pub(crate) async fn heart(&self) {
        self.report("heart", &self.heartbeat()).await;
    }

    pub(crate) fn heartbeat(&self) -> Value {
        json!({
            "baseMetadata": { "identity": self.id, "name": "shop", "version": "1.1", "clusterName": "east" },
            "localIP": "192.0.2.1", "localHostName": "shop-0", "state": "ACTIVATED",
        })
    }
}

/// Returns the answer to a command for the module `cart:1.0.0`.
pub(crate) fn operation(command: &str, code: &str) -> Value {
    let response = json!({ "code": code, "data": { "code": code, "message": "done" } });
    json!({ "command": command, "bizName": "cart", "bizVersion": "1.0.0", "response": response })
}
