//! The tunnel to Koupleless bases over HTTP.

mod bases;
mod exchange;
mod listener;
mod serve;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use staffetta_driver::tunnel::{NodeDescription, NodeId, PodKey, SendError, Tunnel, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason, RequestLog};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info};

use self::bases::Bases;
use self::exchange::BaseClient;
use crate::clear_on_drop::ClearOnDrop;
use crate::clock::boot_time;
use crate::module::{self, Module};
use crate::operations::{ArkletCommand, Operations};
use crate::options::HttpTunnelOptions;
use crate::wire::{BizInfo, HealthInfo, OperationData, failed, node_status, statuses};

/// The name of the tunnel, which is the value of a label of each of its nodes.
const KEY: &str = "koupleless-http";

/// The tunnel over HTTP: bases report to a listener, and are called at the address from which they report.
///
/// It implements the endpoints of Arklet, a base's agent. Bases post `/heartbeat` and `/queryBaseline`, and serve `/health`,
/// `/queryAllBiz`, `/installBiz`, `/switchBiz` and `/uninstallBiz`. The protocol has no credentials: see [`HttpTunnelOptions`].
#[derive(Debug)]
pub struct HttpTunnel {
    shared: Arc<TunnelState>,
}

/// The state of the tunnel, which its tasks share.
#[derive(Debug)]
struct TunnelState {
    options: HttpTunnelOptions,
    client: BaseClient,
    bases: Mutex<Bases>,
    operations: Operations,
    running: Mutex<Option<Running>>,
    /// The number of heartbeats and baseline queries that were rejected.
    rejected: AtomicU64,
}

/// The part of the tunnel's state that exists only while the tunnel runs.
#[derive(Debug)]
struct Running {
    /// The address of the listener.
    address: SocketAddr,
    sender: TunnelSender,
    /// The tasks that load and unload modules, which end with the tunnel. [`Operations`] limits their number.
    changes: JoinSet<()>,
}

impl HttpTunnel {
    /// Creates the tunnel, without listening yet.
    pub fn new(options: HttpTunnelOptions) -> Self {
        let client = BaseClient::new(&options);
        let bases = Mutex::new(Bases::new(options.max_bases.get()));
        let (operations, running, rejected) = (Operations::default(), Mutex::default(), AtomicU64::new(0));
        Self { shared: Arc::new(TunnelState { options, client, bases, operations, running, rejected }) }
    }

    /// Returns the address of the listener; `None` while the tunnel does not run.
    pub fn address(&self) -> Option<SocketAddr> {
        self.shared.running.lock().as_ref().map(|running| running.address)
    }

    /// Starts a task that changes a module, and returns at once. The answer of the base or, without one, a failure arrives as a
    /// report; once the node has stopped, nothing is sent or reported. Fails if the tunnel does not run, if the container names no module,
    /// if the address of the base is not known, if the same command is in progress, or if too many modules of the base are being changed.
    fn change(
        &self,
        command: ArkletCommand,
        node: &NodeId,
        container: &Container,
    ) -> Result<(), DriverError> {
        let module = Module::of(container, command.step())?;
        let sender = self.shared.sender(command)?;
        let address = self.shared.address(command, node)?;
        let under_way = self.shared.operations.begin(node, command, Some(&module.key()))?;
        let (requests, send_by) = (RequestLog::current(), boot_time() + self.shared.options.send_limit);
        let (shared, node) = (Arc::clone(&self.shared), node.clone());
        let change = async move {
            let call = shared.client.call::<OperationData>(&node, address, command, &module, Some(send_by));
            let answered = tokio::select! {
                biased;
                () = under_way.ended() => return,
                answered = requests.collect(call) => answered,
            };
            let answer = match answered {
                Ok(response) => response.operation(command, module.key()),
                Err(failure) => failed(module.key(), &failure.error),
            };
            debug!(base = %node, module = %answer.container_key, command = command.name(), result = ?answer.result, "a base was changed");
            under_way.finish(&sender, answer);
        };
        let mut running = self.shared.running.lock();
        let changes = &mut running.as_mut().ok_or_else(|| not_running(command))?.changes;
        while changes.try_join_next().is_some() {}
        changes.spawn(change);
        Ok(())
    }

    /// Sends a query to a base. Returns the data of its response, and the sender that passes them to the virtual-node handler.
    async fn query<T: DeserializeOwned>(
        &self,
        command: ArkletCommand,
        node: &NodeId,
    ) -> Result<(T, TunnelSender), DriverError> {
        let sender = self.shared.sender(command)?;
        let address = self.shared.address(command, node)?;
        let _under_way = self.shared.operations.begin(node, command, None)?;
        let response = self.shared.client.call(node, address, command, &json!({}), None).await;
        let response = response.map_err(|failure| {
            if failure.is_elsewhere {
                self.shared.bases.lock().absent(node, address, Instant::now());
            }
            failure.error
        })?;
        self.shared.bases.lock().answered(node, address, Instant::now());
        let data = response.data().map_err(|why| {
            DriverError::new(Reason::Unavailable, command.step()).detail(format!("base {node}: {why}"))
        })?;
        Ok((data, sender))
    }
}

#[async_trait]
impl Tunnel for HttpTunnel {
    fn key(&self) -> &str {
        KEY
    }

    fn ready(&self) -> bool {
        self.address().is_some()
    }

    fn dropped_reports(&self) -> u64 {
        self.shared.rejected.load(Ordering::Relaxed)
    }

    async fn start(
        &self,
        _client_id: &str,
        _environment: &str,
        sender: TunnelSender,
    ) -> Result<(), DriverError> {
        let failed = |error| {
            let listen = self.shared.options.listen;
            DriverError::new(Reason::Unavailable, "listen for bases")
                .detail(listen.to_string())
                .because(error)
        };
        let listener = TcpListener::bind(self.shared.options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let running = Running { address, sender: sender.clone(), changes: JoinSet::new() };
        *self.shared.running.lock() = Some(running);
        let _stopped = ClearOnDrop(&self.shared.running);
        info!(tunnel = KEY, %address, "listening for bases");
        let shared = Arc::clone(&self.shared);
        let respond = move |peer, request| {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            async move { listener::respond(&shared, &sender, peer, request).await }
        };
        match serve::serve(listener, respond).await {}
    }

    async fn on_node_start(&self, node: &NodeId, description: &NodeDescription) {
        let network = &description.network_info;
        let address = network.node_ip.zip(network.port).map(|(ip, port)| SocketAddr::new(ip, port));
        let mut bases = self.shared.bases.lock();
        if bases.start(node, address, Instant::now())
            && let Some(running) = &*self.shared.running.lock()
        {
            // A report from the replaced address may wait to be processed: this takes its place.
            let _ = running.sender.node_discovered(node, description.clone());
        }
    }

    async fn on_node_stop(&self, node: &NodeId) {
        self.shared.operations.stop(node);
        self.shared.bases.lock().stop(node);
    }

    async fn fetch_health_data(&self, node: &NodeId) -> Result<(), DriverError> {
        let (health, sender) = self.query::<HealthInfo>(ArkletCommand::Health, node).await?;
        sender.node_status(node, node_status(health)).map_err(|error| unsent(ArkletCommand::Health, error))
    }

    async fn query_all_container_status_data(&self, node: &NodeId) -> Result<(), DriverError> {
        let (modules, sender) = self.query::<Vec<BizInfo>>(ArkletCommand::QueryAllBiz, node).await?;
        let statuses = statuses(modules, Timestamp::now());
        sender
            .all_container_statuses(node, statuses)
            .map_err(|error| unsent(ArkletCommand::QueryAllBiz, error))
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

impl TunnelState {
    /// Returns `true` if `ip` is in one of the networks of the option `base_networks`, so that a base with this address may report from
    /// another one.
    fn in_base_networks(&self, ip: IpAddr) -> bool {
        self.options.base_networks.iter().any(|network| network.contains(&ip))
    }

    /// Returns the sender that passes reports to the virtual-node handler. Fails if the tunnel does not run.
    fn sender(&self, command: ArkletCommand) -> Result<TunnelSender, DriverError> {
        self.running.lock().as_ref().map(|running| running.sender.clone()).ok_or_else(|| not_running(command))
    }

    /// Returns the address of a base. Fails if this process knows none, neither from a report nor from the Node object.
    fn address(&self, command: ArkletCommand, node: &NodeId) -> Result<SocketAddr, DriverError> {
        self.bases.lock().address(node).ok_or_else(|| {
            let error = DriverError::new(Reason::Awaited, command.step());
            error.detail(format!("base {node} has not reported its address yet"))
        })
    }
}

/// Returns the error of a command while the tunnel does not run.
fn not_running(command: ArkletCommand) -> DriverError {
    DriverError::new(Reason::Unavailable, command.step()).detail("the tunnel does not run")
}

/// Returns the error of a query whose answer was not accepted by the queue of the virtual-node handler.
fn unsent(command: ArkletCommand, error: SendError) -> DriverError {
    DriverError::new(Reason::Unavailable, command.step()).detail("the report is dropped").because(error)
}
