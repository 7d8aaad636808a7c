//! The parts of the devstack, started and stopped together.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use kube::{Client, Config};
use staffetta::config::{Configuration, ConfigurationError, FileSchema};
use staffetta::controller::{Controller, ControllerError};
use staffetta_apiserver::ApiServer;
use staffetta_cluster::{Cluster, Parts, PodStart};
use staffetta_handler::HANDLER_LABEL;
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryPrefixes, MemoryServices};

use crate::bases::Bases;
use crate::devices::{Devices, DevicesError};

const CONFIGURATION: &str = include_str!("../staffetta.toml");

/// The running devstack.
pub(crate) struct Stack {
    pub(crate) client: Client,
    pub(crate) network: Arc<MemoryNetwork>,
    pub(crate) services: Arc<MemoryServices>,
    /// The network interfaces of nodes.
    pub(crate) interfaces: Arc<MemoryPrefixes>,
    pub(crate) devices: Devices,
    pub(crate) bases: Bases,
    server: ApiServer,
    cluster: Cluster,
    windows: Cluster,
    controller: Controller,
}

/// Errors of starting the devstack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackError {
    #[error("the API server cannot listen at {address} (`--listen`)")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the simulated routers cannot start")]
    Devices(#[from] DevicesError),
    #[error("no port is free for the bases")]
    Bases(#[source] io::Error),
    #[error("the configuration of the demo is wrong")]
    Configuration(#[from] ConfigurationError),
    #[error("the section `[memory]` of the demo's configuration is wrong")]
    Memory(#[source] serde_json::Error),
    #[error("the log cannot be written")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the client of the API server cannot be made")]
    Client(#[source] Box<kube::Error>),
    #[error("the controller cannot run")]
    Controller(#[from] ControllerError),
}

impl Stack {
    /// Starts all parts. `folder` gets the configuration and the log.
    pub(crate) async fn start(listen: SocketAddr, folder: &Path) -> Result<Self, StackError> {
        let options = staffetta_apiserver::Options { listen, ..staffetta_apiserver::Options::default() };
        let server = ApiServer::start(options)
            .await
            .map_err(|source| StackError::Listen { address: listen, source })?;
        let client = client(server.url()).map_err(|error| StackError::Client(Box::new(error)))?;
        let devices = Devices::start(folder)?;
        let bases = Bases::prepare().map_err(StackError::Bases)?;
        let mut registry = staffetta::assembly::registry();
        let configuration = configuration(&registry, folder, devices.file(), bases.controller())?;
        log_to(&folder.join("log"), &configuration.log.level)?;
        let memory = &configuration.value["memory"];
        let options: MemoryOptions = serde_json::from_value(memory.clone()).map_err(StackError::Memory)?;
        let network = Arc::new(MemoryNetwork::new(options.clone()));
        let interfaces = Arc::new(MemoryPrefixes::of_options(&options));
        staffetta::assembly::interfaces(&mut registry, &interfaces);
        let services = Arc::new(MemoryServices::new(options));
        staffetta::assembly::world(&mut registry, &network, &services);
        let mut controller = Controller::start(registry, &configuration, client.clone()).await?;
        let options = staffetta_cluster::Options {
            nodes: 3,
            stop_time: Duration::from_millis(100),
            ..staffetta_cluster::Options::default()
        };
        let cluster = Cluster::start(client.clone(), options);
        let windows = Cluster::start(client.clone(), windows());
        controller.ready().await?;
        Ok(Self {
            client,
            network,
            services,
            interfaces,
            devices,
            bases,
            server,
            cluster,
            windows,
            controller,
        })
    }

    /// The kubeconfig of the API server.
    pub(crate) fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// Stops all parts, the server last.
    pub(crate) async fn stop(self) -> Result<(), StackError> {
        let stopped = self.controller.stop().await;
        self.windows.stop().await;
        self.cluster.stop().await;
        self.server.stop().await;
        Ok(stopped?)
    }
}

/// A Windows node, whose pods get addresses of its network interface and no VIF. Other pods do not tolerate its taint.
fn windows() -> staffetta_cluster::Options {
    let labels = [("kubernetes.io/os", "windows"), (HANDLER_LABEL, "prefix_ip")];
    let taint = Taint {
        key: "os".into(),
        value: Some("windows".into()),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    staffetta_cluster::Options {
        name: "windows".into(),
        nodes: 1,
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        spec: Some(NodeSpec {
            provider_id: Some("aws:///local/i-windows-1".into()),
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        }),
        parts: Parts::Nodes,
        pod_start: PodStart::WithInterfaceAddress,
        stop_time: Duration::from_millis(100),
    }
}

fn client(url: &str) -> kube::Result<Client> {
    let url = url.parse().expect("the server knows its own address");
    let mut config = Config::new(url);
    config.default_retry = false;
    Client::try_from(config)
}

/// The configuration of the demo, written to where its user can look at it.
fn configuration(
    registry: &staffetta_handler::Registry,
    folder: &Path,
    devices: &Path,
    bases: SocketAddr,
) -> Result<Configuration, StackError> {
    let path = folder.join("staffetta.toml");
    // Quoted as in Rust is quoted as in TOML, as far as paths go.
    let text = CONFIGURATION.replace("\"DEVICES\"", &format!("{:?}", devices.display().to_string()));
    let text = text.replace("BASES", &bases.to_string());
    std::fs::write(&path, text).map_err(|source| StackError::Write { path: path.clone(), source })?;
    let schema = FileSchema::assemble(registry)?;
    Ok(Configuration::load(&schema, Some(&path), [])?)
}

/// The controller's log goes to a file: the screen belongs to the table.
fn log_to(path: &Path, level: &str) -> Result<(), StackError> {
    let file = File::create(path).map_err(|source| StackError::Write { path: path.to_owned(), source })?;
    let filter =
        tracing_subscriber::EnvFilter::try_new(level).map_err(|error| StackError::Log(error.into()))?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Arc::new(file));
    builder.try_init().map_err(StackError::Log)
}
