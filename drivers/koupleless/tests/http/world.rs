//! A running tunnel with the receiver of its events.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use staffetta_driver::tunnel::{ContainerOperationResponseData, NodeId, PodKey, Tunnel, TunnelEvent};
use staffetta_koupleless::{HttpTunnel, HttpTunnelOptions};
use staffetta_koupleless_base::{AnswerFault, BaseCommand, SimulatedBase, SimulatedBaseOptions};
use staffetta_virtual_node::vnode::{TunnelLimits, TunnelReceiver, channel};
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct World {
    pub(crate) tunnel: Arc<HttpTunnel>,
    pub(crate) receiver: TunnelReceiver,
    pub(crate) running: AbortOnDropHandle<()>,
}

/// Returns options for a test: any free port.
pub(crate) fn options() -> HttpTunnelOptions {
    HttpTunnelOptions { listen: "127.0.0.1:0".parse().unwrap(), ..HttpTunnelOptions::default() }
}

/// Returns options with time limits that a test can wait for.
pub(crate) fn impatient() -> HttpTunnelOptions {
    let limit = NonZeroU64::new(50).unwrap();
    HttpTunnelOptions { query_timeout_ms: limit, operation_timeout_ms: limit, ..options() }
}

/// Starts a base that reports nothing by itself.
pub(crate) async fn base(id: &str) -> SimulatedBase {
    let options = SimulatedBaseOptions {
        identity: id.to_owned(),
        max_metaspace: 10_240,
        module_metaspace: 1024,
        ..SimulatedBaseOptions::default()
    };
    SimulatedBase::http(options, &[]).await.unwrap()
}

/// Makes a base answer a command with this status and body, without executing it.
pub(crate) fn answers(base: &SimulatedBase, command: BaseCommand, status: u16, body: &str) {
    let fixed = AnswerFault::Fixed { status, body: body.as_bytes().to_vec() };
    base.behave(|behaviour| drop(behaviour.answers.insert(command, fixed)));
}

/// Returns the bodies of the requests of a base with this command.
pub(crate) fn requests(base: &SimulatedBase, command: BaseCommand) -> Vec<Value> {
    let operations = base.operations().into_iter().filter(|operation| operation.command == command);
    operations.map(|operation| operation.request).collect()
}

impl World {
    /// Starts a tunnel.
    pub(crate) async fn start(options: HttpTunnelOptions) -> Self {
        // The client of the tests has TLS where the whole workspace is built.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tunnel = Arc::new(HttpTunnel::new(options));
        assert!(!tunnel.ready());
        let (sender, receiver) = channel(TunnelLimits::default());
        let started = Arc::clone(&tunnel);
        let running = tokio::spawn(async move { started.start("client", "test", sender).await.unwrap() });
        while !tunnel.ready() {
            tokio::task::yield_now().await;
        }
        Self { tunnel, receiver, running: AbortOnDropHandle::new(running) }
    }

    /// Starts a tunnel and a base that has reported.
    pub(crate) async fn with_base(options: HttpTunnelOptions) -> (Self, SimulatedBase, NodeId) {
        let mut world = Self::start(options).await;
        let base = base("base-1").await;
        assert_eq!(world.post("heartbeat", &base.heartbeat()).await, (200, "SUCCESS".to_owned()));
        let (id, event) = world.receiver.recv().await.unwrap();
        assert!(matches!(event, TunnelEvent::NodeDiscovered(_)));
        (world, base, id)
    }

    /// Posts a report from 127.0.0.1, and returns the status and the body of the response.
    pub(crate) async fn post(&self, endpoint: &str, report: &Value) -> (u16, String) {
        self.post_from("127.0.0.1", endpoint, report.to_string()).await
    }

    /// Posts a report from an address of loopback, and returns the status and the body of the response.
    pub(crate) async fn post_from(&self, from: &str, endpoint: &str, body: String) -> (u16, String) {
        let from: IpAddr = from.parse().unwrap();
        let client = reqwest::Client::builder().no_proxy().local_address(from).build().unwrap();
        let url = format!("http://{}/{endpoint}", self.tunnel.address().unwrap());
        let response = client.post(url).body(body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub(crate) async fn install(&self, base: &NodeId) -> Result<(), staffetta_driver::DriverError> {
        self.tunnel.start_container(base, &PodKey::All, &cart()).await
    }

    pub(crate) async fn uninstall(&self, base: &NodeId) -> Result<(), staffetta_driver::DriverError> {
        self.tunnel.shutdown_container(base, &PodKey::All, &cart()).await
    }

    /// Returns the next event, which must be the answer to an install (`true`) or an uninstall.
    pub(crate) async fn answer(&mut self) -> (bool, ContainerOperationResponseData) {
        match self.receiver.recv().await.unwrap().1 {
            TunnelEvent::StartContainerResponse(answer) => (true, answer),
            TunnelEvent::ShutdownContainerResponse(answer) => (false, answer),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the container of the module `cart:1.0.0`.
pub(crate) fn cart() -> Container {
    let env = json!([{ "name": "BIZ_VERSION", "value": "1.0.0" }]);
    let container = json!({ "name": "cart", "image": "https://example.com/cart.jar", "env": env });
    serde_json::from_value(container).unwrap()
}
