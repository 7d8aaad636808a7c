//! The tunnel to bases over HTTP.

mod bases;
mod exchange;
mod listener;
mod serve;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use serde::de::DeserializeOwned;
use serde_json::json;
use staffetta_driver::tunnel::{NodeDescription, NodeId, PodKey, SendError, Tunnel, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason, RequestLog};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::bases::Bases;
use self::exchange::BaseClient;
use crate::clock::boot_time;
use crate::lock::{ClearOnDrop, lock};
use crate::module::{self, Module};
use crate::operations::{ArkletCommand, Operations, report};
use crate::options::HttpTunnelOptions;
use crate::wire::{BizInfo, HealthInfo, OperationData, failed, node_status, statuses};

/// The key of the tunnel, which the label of a node contains.
const KEY: &str = "koupleless-http";

/// The tunnel over HTTP: bases report to a listener, and are called at the address from which they report.
///
/// It implements the endpoints of Arklet, a base's agent. Bases post `/heartbeat` and `/queryBaseline`, and serve `/health`,
/// `/queryAllBiz`, `/installBiz` and `/uninstallBiz`. The protocol has no credentials: see [`HttpTunnelOptions`].
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
    operations: Mutex<Operations>,
    running: Mutex<Option<Running>>,
    /// The number of heartbeats that were rejected.
    rejected: AtomicU64,
}

/// The part of the state that exists while the tunnel runs.
#[derive(Clone, Debug)]
struct Running {
    /// The address of the listener.
    address: SocketAddr,
    sender: TunnelSender,
    /// Passes changes of modules to the task of the tunnel. [`Operations`] limits the number of changes in the channel.
    changes: mpsc::UnboundedSender<ModuleChange>,
}

/// A module to be loaded or unloaded.
#[derive(Debug)]
struct ModuleChange {
    command: ArkletCommand,
    module: Module,
    /// The address of the base.
    address: SocketAddr,
    /// The request log of the attempt that asks for the change.
    requests: Arc<RequestLog>,
    /// The boot time after which the request is not sent any more.
    send_by: Duration,
    /// Keeps the request recorded as in progress until it is dropped.
    under_way: RequestInProgress,
}

impl HttpTunnel {
    /// Creates the tunnel, without listening yet.
    pub fn new(options: HttpTunnelOptions) -> Self {
        let client = BaseClient::new(&options);
        let bases = Mutex::new(Bases::new(options.max_bases.get()));
        let (operations, running, rejected) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { shared: Arc::new(TunnelState { options, client, bases, operations, running, rejected }) }
    }

    /// Returns the address of the listener; `None` while the tunnel does not run.
    pub fn address(&self) -> Option<SocketAddr> {
        lock(&self.shared.running).as_ref().map(|running| running.address)
    }

    /// Queues the loading or unloading of a module for the task of the tunnel, and returns at once. The answer of the base arrives as a
    /// report. Fails if the container names no module, if the address of the base is not known, or if an operation on the module is in
    /// progress.
    fn change(
        &self,
        command: ArkletCommand,
        node: &NodeId,
        container: &Container,
    ) -> Result<(), DriverError> {
        let module = Module::of(container, command.step())?;
        let running = self.shared.running(command)?;
        let address = self.shared.address(command, node)?;
        let under_way = RequestInProgress::begin(&self.shared, node, command, Some(module.key()))?;
        let (requests, send_by) = (RequestLog::current(), boot_time() + self.shared.options.send_limit);
        let change = ModuleChange { command, module, address, requests, send_by, under_way };
        running.changes.send(change).map_err(|_| not_running(command))
    }

    /// Sends a query to a base. Returns the data of its response, and the sender that passes them to the receiver of the tunnel.
    async fn query<T: DeserializeOwned>(
        &self,
        command: ArkletCommand,
        node: &NodeId,
    ) -> Result<(T, TunnelSender), DriverError> {
        let running = self.shared.running(command)?;
        let address = self.shared.address(command, node)?;
        let _under_way = RequestInProgress::begin(&self.shared, node, command, None)?;
        let response = self.shared.client.call(node, address, command, &json!({}), None).await;
        let response = response.map_err(|failure| {
            if failure.is_elsewhere {
                self.shared.bases().absent(node, address, Instant::now());
            }
            failure.error
        })?;
        self.shared.bases().answered(node, address, Instant::now());
        let data = response.data().map_err(|why| {
            DriverError::new(Reason::Unavailable, command.step()).detail(format!("base {node}: {why}"))
        })?;
        Ok((data, running.sender))
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
        let (changes, arriving) = mpsc::unbounded_channel();
        *lock(&self.shared.running) = Some(Running { address, sender: sender.clone(), changes });
        let _stopped = ClearOnDrop(&self.shared.running);
        info!(tunnel = KEY, %address, "listening for bases");
        let (shared, reports) = (Arc::clone(&self.shared), sender.clone());
        let respond = move |peer, request| {
            let (shared, reports) = (Arc::clone(&shared), reports.clone());
            async move { listener::respond(&shared, &reports, peer, request).await }
        };
        tokio::select! {
            never = serve::serve(listener, respond) => match never {},
            never = run_changes(arriving, &self.shared, &sender) => match never {},
        }
    }

    async fn on_node_start(&self, node: &NodeId, description: &NodeDescription) {
        let network = &description.network_info;
        let address = network.node_ip.zip(network.port).map(|(ip, port)| SocketAddr::new(ip, port));
        let mut bases = self.shared.bases();
        if bases.start(node, address, Instant::now())
            && let Some(running) = &*lock(&self.shared.running)
        {
            // A report from the replaced address may wait to be processed: this takes its place.
            let _ = running.sender.node_discovered(node, description.clone());
        }
    }

    async fn on_node_stop(&self, node: &NodeId) {
        lock(&self.shared.operations).stop(node);
        self.shared.bases().stop(node);
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

/// Loads and unloads modules, each in its own task, until the returned future is dropped, which cancels them.
async fn run_changes(
    mut arriving: mpsc::UnboundedReceiver<ModuleChange>,
    shared: &Arc<TunnelState>,
    sender: &TunnelSender,
) -> std::convert::Infallible {
    let mut changes = JoinSet::new();
    loop {
        tokio::select! {
            Some(change) = arriving.recv() => {
                changes.spawn(run_change(change, Arc::clone(shared), sender.clone()));
            }
            Some(_) = changes.join_next() => {}
        }
    }
}

/// Sends the request to load or unload one module, and reports the answer or, without one, a failure. Once the node has stopped, nothing is
/// sent or reported.
async fn run_change(change: ModuleChange, shared: Arc<TunnelState>, sender: TunnelSender) {
    let ModuleChange { command, module, address, requests, send_by, under_way } = change;
    let (node, key) = (under_way.node.clone(), module.key());
    let call = shared.client.call::<OperationData>(&node, address, command, &module, Some(send_by));
    let answered = tokio::select! {
        biased;
        () = under_way.ended.cancelled() => return,
        answered = requests.collect(call) => answered,
    };
    let answer = match answered {
        Ok(response) => response.operation(command, key),
        Err(failure) => failed(key, &failure.error),
    };
    debug!(base = %node, module = %answer.container_key, command = command.name(), result = ?answer.result, "a base was changed");
    drop(under_way); // whoever gets the answer may repeat the request at once
    let sent = report(&sender, &node, command, answer);
    if let Err(error) = sent {
        debug!(base = %node, %error, "an answer is dropped; the next query will show its effect");
    }
}

impl TunnelState {
    fn bases(&self) -> MutexGuard<'_, Bases> {
        lock(&self.bases)
    }

    /// Returns `true` if a base with this address may report from another one.
    fn in_base_networks(&self, ip: IpAddr) -> bool {
        self.options.base_networks.iter().any(|network| network.contains(&ip))
    }

    /// Returns the part of the state that exists while the tunnel runs. Fails if it does not run.
    fn running(&self, command: ArkletCommand) -> Result<Running, DriverError> {
        lock(&self.running).clone().ok_or_else(|| not_running(command))
    }

    /// Returns the address of a base. Fails if this process knows none, neither from a report nor from the Node object.
    fn address(&self, command: ArkletCommand, node: &NodeId) -> Result<SocketAddr, DriverError> {
        self.bases().address(node).ok_or_else(|| {
            let error = DriverError::new(Reason::Awaited, command.step());
            error.detail(format!("base {node} has not reported its address yet"))
        })
    }
}

/// Keeps a request to a base recorded as in progress until it is dropped.
#[derive(Debug)]
struct RequestInProgress {
    shared: Arc<TunnelState>,
    node: NodeId,
    command: ArkletCommand,
    module: Option<ContainerKey>,
    /// Cancelled when the request has ended, because its node stopped.
    ended: CancellationToken,
}

impl RequestInProgress {
    /// Records a request to a base. Fails if the same query or a change of the same module is in progress, or too many changes are.
    fn begin(
        shared: &Arc<TunnelState>,
        node: &NodeId,
        command: ArkletCommand,
        module: Option<ContainerKey>,
    ) -> Result<Self, DriverError> {
        let ended = lock(&shared.operations).begin(node, command, module.as_ref(), None)?;
        Ok(Self { shared: Arc::clone(shared), node: node.clone(), command, module, ended })
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut operations = lock(&self.shared.operations);
        // One that has ended may have a successor.
        if !self.ended.is_cancelled() {
            operations.end(&self.node, self.command, self.module.as_ref());
        }
    }
}

/// The error of a request while the tunnel does not run.
fn not_running(command: ArkletCommand) -> DriverError {
    DriverError::new(Reason::Unavailable, command.step()).detail("the tunnel does not run")
}

/// The error of a query whose answer the receiver of the tunnel did not accept.
fn unsent(command: ArkletCommand, error: SendError) -> DriverError {
    DriverError::new(Reason::Unavailable, command.step()).detail("the report is dropped").because(error)
}
