//! A running tunnel with the receiver of its events.

use std::num::{NonZeroU16, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use serde_json::json;
use staffetta_driver::app_hosting::Password;
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, NodeDescription, NodeId, PodKey, Tunnel, TunnelEvent,
};
use staffetta_driver::{DriverError, Reason};
use staffetta_koupleless::{MqttTunnel, MqttTunnelOptions, MqttVersion};
use staffetta_virtual_node::vnode::{TunnelLimits, TunnelReceiver, channel};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::base::Base;
use crate::broker::Broker;

/// The time between two attempts of what a test waits for.
const POLL: Duration = Duration::from_millis(20);

/// The time after which a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) environment: String,
    pub(crate) tunnel: Arc<MqttTunnel>,
    pub(crate) receiver: TunnelReceiver,
    _running: AbortOnDropHandle<()>,
}

/// Returns options of the user `controller`, without TLS.
pub(crate) fn options(broker: &Broker, version: MqttVersion) -> MqttTunnelOptions {
    MqttTunnelOptions {
        broker: "127.0.0.1".to_owned(),
        port: NonZeroU16::new(broker.port(false)),
        version,
        username: "controller".to_owned(),
        password: Some(Password::new("controller")),
        tls: false,
        resync_ms: NonZeroU64::new(1).unwrap(),
        ..MqttTunnelOptions::default()
    }
}

impl World {
    /// Starts a tunnel in an environment of its own, without waiting for its connection.
    pub(crate) fn start(options: MqttTunnelOptions) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self::start_in(options, format!("test-{}-{number}", std::process::id()))
    }

    /// Starts a tunnel in an environment, without waiting for its connection.
    pub(crate) fn start_in(options: MqttTunnelOptions, environment: String) -> Self {
        let tunnel = Arc::new(MqttTunnel::new(options));
        let (sender, receiver) = channel(TunnelLimits::default());
        let (started, of) = (Arc::clone(&tunnel), environment.clone());
        let running = tokio::spawn(async move { started.start(&of, &of, sender).await.unwrap() });
        Self { environment, tunnel, receiver, _running: AbortOnDropHandle::new(running) }
    }

    /// Starts a tunnel and a base that is discovered, has a node, and has reported that it has no modules.
    pub(crate) async fn with_base(broker: &Broker, options: MqttTunnelOptions) -> (Self, Base, NodeId) {
        let mut world = Self::start(options);
        let mut base = Base::connect(broker, &world.environment, "base-1").await;
        let (id, node) = world.discover(&base).await;
        world.tunnel.on_node_start(&id, &node).await;
        base.queried().await;
        assert_eq!(world.install(&id).await.unwrap_err().reason(), Reason::Awaited);
        base.report("simpleBiz", &json!([])).await;
        assert!(matches!(world.event().await, TunnelEvent::AllContainerStatuses(_)));
        (world, base, id)
    }

    /// Waits until the tunnel is connected.
    pub(crate) async fn connected(&self) {
        let connected = async {
            while !self.tunnel.connected() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(PATIENCE, connected).await.expect("the tunnel connects");
    }

    /// Waits for the error of a connection.
    pub(crate) async fn error(&self) -> String {
        let failed = async {
            loop {
                if let Some(error) = self.tunnel.connection_error() {
                    return error;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(PATIENCE, failed).await.expect("the connection fails")
    }

    /// Sends heartbeats of a base until the tunnel is subscribed and reports it. No other kind of event may arrive, but for empty reports, of
    /// which [`report_modules`](Self::report_modules) may have sent more than it has waited for.
    pub(crate) async fn discover(&mut self, base: &Base) -> (NodeId, NodeDescription) {
        let mut ticks = tokio::time::interval(POLL);
        let give_up = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(give_up) => panic!("{} is not discovered", base.id),
                _ = ticks.tick() => base.heart().await,
                next = self.receiver.recv() => match next.unwrap() {
                    (id, TunnelEvent::NodeDiscovered(node)) if id.as_str() == base.id => return (id, node),
                    (_, TunnelEvent::NodeDiscovered(_)) => {}
                    (_, TunnelEvent::AllContainerStatuses(modules)) if modules.is_empty() => {}
                    (id, other) => panic!("{id}: {other:?}"),
                }
            }
        }
    }

    /// Sends the modules of a base, which has none, until the tunnel is subscribed and reports them.
    pub(crate) async fn report_modules(&mut self, base: &Base) {
        let mut ticks = tokio::time::interval(POLL);
        let give_up = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(give_up) => panic!("the modules of {} do not arrive", base.id),
                _ = ticks.tick() => base.report("simpleBiz", &json!([])).await,
                next = self.receiver.recv() => match next.unwrap() {
                    (id, TunnelEvent::AllContainerStatuses(_)) if id.as_str() == base.id => return,
                    (_, TunnelEvent::NodeDiscovered(_)) => {}
                    (id, other) => panic!("{id}: {other:?}"),
                }
            }
        }
    }

    /// Returns the next event that is no heartbeat.
    pub(crate) async fn event(&mut self) -> TunnelEvent {
        loop {
            match self.receiver.recv().await.unwrap().1 {
                TunnelEvent::NodeDiscovered(_) => {}
                event => return event,
            }
        }
    }

    pub(crate) async fn install(&self, base: &NodeId) -> Result<(), DriverError> {
        self.tunnel.start_container(base, &PodKey::All, &cart()).await
    }

    pub(crate) async fn uninstall(&self, base: &NodeId) -> Result<(), DriverError> {
        self.tunnel.shutdown_container(base, &PodKey::All, &cart()).await
    }

    /// Returns the next answer to an install (`true`) or an uninstall. Only modules may be reported before it, as
    /// [`report_modules`](Self::report_modules) may have sent more reports than it has waited for.
    pub(crate) async fn answer(&mut self) -> (bool, ContainerOperationResponseData) {
        loop {
            match self.event().await {
                TunnelEvent::StartContainerResponse(answer) => return (true, answer),
                TunnelEvent::ShutdownContainerResponse(answer) => return (false, answer),
                TunnelEvent::AllContainerStatuses(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns the description of an active base.
pub(crate) fn description() -> NodeDescription {
    let metadata = json!({ "name": "shop", "version": "1.1", "status": "activated" });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// Returns the container of the module `cart:1.0.0`.
pub(crate) fn cart() -> Container {
    let env = json!([{ "name": "BIZ_VERSION", "value": "1.0.0" }]);
    let container = json!({ "name": "cart", "image": "https://example.com/cart.jar", "env": env });
    serde_json::from_value(container).unwrap()
}
