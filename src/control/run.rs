//! `staffetta run`: runs the controller from the configuration to the end of the process.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kube::Client;
use staffetta_handler::Registry;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tracing::{info, warn};

use crate::base::config::{Configuration, KubernetesOptions, Mistake, RelayOptions};
use crate::base::connect::{self, ConnectError, Connection};
use crate::base::telemetry;
use crate::base::traces;
use crate::base::version::{BuildInfo, VERSION};
use crate::control::controller::{self, Controller, ControllerError};
use crate::engine::cluster::ClusterInfo;
use crate::engine::webhook::Webhook;

/// The time that blocking operations get to finish at the end of the program. The limit is needed because a read from a file system
/// that does not respond never completes.
const BLOCKING_GRACE: Duration = Duration::from_secs(1);

/// The reason why `staffetta run`, or another command that connects to the cluster, failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The log, the runtime or the signal handlers cannot be set up.
    #[error("cannot start")]
    Start(#[source] io::Error),
    /// There is no usable connection to the Kubernetes API.
    #[error("cannot connect to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// A dry run, or a command other than `run`, failed; most of them have connected to the cluster by then.
    #[error(transparent)]
    Command(BoxError),
    /// The controller could not start, panicked, or still had running handlers at the end of the drain time.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// Runs the controller until SIGTERM or SIGINT. After the first signal, handlers have the configured drain time to finish. A second
/// signal, or a signal before the connection to the API server is built, ends the process at once. Fails if the controller cannot start,
/// or ends with an error.
pub(crate) fn run(registry: Registry, configuration: &Configuration) -> Result<(), RunError> {
    let runtime = start(configuration)?;
    log_start(&registry, configuration);
    block_on(runtime, serve(registry, configuration))
}

/// Logs the version of the program, the enabled handlers, and the driver that each option `<trait>_driver` chooses.
pub(crate) fn log_start(registry: &Registry, configuration: &Configuration) {
    let options = registry.driver_traits().filter(|interface| interface.has_option);
    let drivers = options.filter_map(|interface| {
        let option = interface.option();
        let driver = configuration.value["kubernetes"][&option].as_str()?;
        Some(format!("{option}={driver}"))
    });
    let drivers = drivers.collect::<Vec<_>>().join(",");
    let handlers = configuration.kubernetes.enabled_handlers.join(",");
    let BuildInfo { version, commit, kubernetes, target, .. } = VERSION;
    info!(version, commit, kubernetes, target, handlers, drivers, "staffetta starts");
}

/// Connects to the cluster, and runs `work`, a command without a controller, with the client. An error of `work` becomes
/// [`RunError::Command`].
pub(crate) fn with_client<T, E: Into<BoxError>, F: Future<Output = Result<T, E>>>(
    configuration: &Configuration,
    work: impl FnOnce(Client) -> F,
) -> Result<T, RunError> {
    block_on(start(configuration)?, async {
        let client = connection(configuration).await?.client;
        work(client).await.map_err(|error| RunError::Command(error.into()))
    })
}

/// Checks the configuration by creating each enabled handler, without a request to any server. Warnings are logged. Fails if a handler
/// cannot be created, or if the options of the log or of the webhook are invalid.
pub(crate) fn check(registry: Registry, configuration: &Configuration) -> Result<(), RunError> {
    init_log(configuration, None)?;
    install_tls_provider();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(RunError::Start)?;
    let _entered = runtime.enter();
    Webhook::of(configuration, "default").map_err(ControllerError::from)?;
    Ok(controller::check_handlers(&Arc::new(registry), configuration, &ClusterInfo::unknown())?)
}

/// Sets up TLS, the log and the export of traces, and returns the runtime on which the command runs. Fails if the runtime, the log or the
/// export of traces cannot be set up.
pub(crate) fn start(configuration: &Configuration) -> Result<Runtime, RunError> {
    install_tls_provider();
    let runtime = runtime(&configuration.relay).map_err(RunError::Start)?;
    init_log(configuration, Some(&runtime))?;
    Ok(runtime)
}

/// Starts the log and, unless `runtime` is `None`, the export of traces on it. Fails if one of their options is invalid, or if this process
/// has a log already.
fn init_log(configuration: &Configuration, runtime: Option<&Runtime>) -> Result<(), RunError> {
    let traces = runtime.map(|runtime| (&configuration.traces, runtime));
    telemetry::init(&configuration.log, traces).map_err(|error| RunError::Start(io::Error::other(error)))?;
    for Mistake { location, path, message } in &configuration.removed {
        warn!(%location, option = path, "{message}");
    }
    Ok(())
}

/// Runs `work` to completion, exports the last spans, and then abandons blocking operations that still run after [`BLOCKING_GRACE`].
pub(crate) fn block_on<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let result = runtime.block_on(work);
    traces::shut_down();
    runtime.shutdown_timeout(BLOCKING_GRACE);
    result
}

/// Installs the TLS provider of the process, unless one is installed already.
pub(crate) fn install_tls_provider() {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Builds a runtime with the number of worker threads in `options`, which does not depend on the number of processors.
fn runtime(options: &RelayOptions) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(options.worker_threads.get()).enable_all().build()
}

/// Builds the connection to the API server, starts the controller, and returns when the controller has stopped. Fails if one of these steps
/// fails, or with the error with which the controller stopped.
async fn serve(registry: Registry, configuration: &Configuration) -> Result<(), RunError> {
    let shutdown = shutdown_signal().map_err(RunError::Start)?;
    let connection = connection_before(&shutdown, configuration).await?;
    Ok(controller(registry, configuration, connection, shutdown).await?.ended().await?)
}

/// Starts the controller. It stops when `shutdown` is cancelled, or when the file of the client certificate or its key was replaced. Fails
/// if the controller cannot start.
pub(crate) async fn controller(
    registry: Registry,
    configuration: &Configuration,
    connection: Connection,
    shutdown: CancellationToken,
) -> Result<Controller, ControllerError> {
    let key_files = connection.key_files.clone();
    let controller = Controller::start(registry, configuration, connection).await?;
    let stop = controller.token();
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            path = key_files.replaced() => warn!(path = %path.display(),
                "the client certificate or key was replaced; stopping, so that a restart loads the new one"),
        }
        stop.cancel();
    });
    Ok(controller)
}

/// Builds the connection to the API server on a thread for blocking work, because a kubeconfig may name a program that obtains the
/// credentials and takes long. Fails if the settings or the credentials of the connection are missing or cannot be used.
pub(crate) async fn connection(configuration: &Configuration) -> Result<Connection, ConnectError> {
    let KubernetesOptions { kubeconfig, api_root, .. } = configuration.kubernetes.clone();
    let connect = async move { connect::connection(kubeconfig.as_deref(), api_root.as_deref()).await };
    let task = spawn_blocking(move || Handle::current().block_on(connect));
    task.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Builds the connection to the API server; fails as [`connection`] does. If `shutdown` is cancelled first, the process exits with code 0.
pub(crate) async fn connection_before(
    shutdown: &CancellationToken,
    configuration: &Configuration,
) -> Result<Connection, RunError> {
    tokio::select! {
        connection = connection(configuration) => Ok(connection?),
        () = shutdown.cancelled() => {
            info!("received a signal before the controller started; stopping");
            std::process::exit(0);
        }
    }
}

/// Returns a token that the first SIGTERM or SIGINT cancels. At the second signal, the process exits with code 1. A thread of its own
/// receives the signals, so that a blocked worker thread does not delay them.
pub(crate) fn shutdown_signal() -> io::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    let first = shutdown.clone();
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let mut next = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let listen = async move {
        next().await;
        info!("received a signal; stopping");
        first.cancel();
        next().await;
        warn!("received a second signal; stopping immediately");
        std::process::exit(1)
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(listen))?;
    Ok(shutdown)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn the_runtime_has_one_worker_thread_by_default() {
        let workers = |options: &RelayOptions| runtime(options).unwrap().metrics().num_workers();
        assert_eq!(workers(&RelayOptions::default()), 1);
        assert_eq!(
            workers(&RelayOptions {
                worker_threads: NonZeroUsize::new(3).unwrap(),
                ..RelayOptions::default()
            }),
            3
        );
    }
}
