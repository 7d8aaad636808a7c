//! `staffetta run`: from the configuration to the end of the process.

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use staffetta_handler::Registry;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{Configuration, Relay};
use crate::connect::{self, ConnectError, Connection};
use crate::controller::{Controller, ControllerError};
use crate::rehearsal::{self, DryRun};
use crate::telemetry;
use crate::trial::{self, Served};

/// How long the end of the program waits for what holds up a thread. The file of a file system that does not answer never comes.
const LAST_READS: Duration = Duration::from_secs(1);

/// Why the program ended with a failure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The operating system refused what the program needs.
    #[error("the program cannot be started")]
    Start(#[source] io::Error),
    /// There is no way to the Kubernetes API.
    #[error("there is no way to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The controller cannot run, or did not end as it should.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// Runs until SIGTERM or SIGINT. The first one lets what runs end within the drain time, a second one ends at once, and so does one
/// that comes before anything runs.
pub(crate) fn run(
    registry: Registry,
    configuration: &Configuration,
    kubeconfig: Option<&Path>,
) -> Result<(), RunError> {
    to_the_end(start(configuration)?, serve(registry, configuration, kubeconfig))
}

/// Plans what [`run`] would do, within `limit`. It ends by itself, and nobody listens at the admin address meanwhile.
pub(crate) fn rehearse(
    registry: Registry,
    configuration: &Configuration,
    kubeconfig: Option<&Path>,
    limit: Duration,
) -> Result<DryRun, RunError> {
    to_the_end(start(configuration)?, async {
        let client = connect::client(kubeconfig.or(configuration.kubernetes.kubeconfig.as_deref())).await?;
        Ok(rehearsal::rehearse(registry, configuration, client, limit).await?)
    })
}

/// Makes each enabled handler for a trial, without asking anybody anything.
pub(crate) fn check(registry: Registry, configuration: &Configuration) -> Result<(), RunError> {
    secure();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(RunError::Start)?;
    let _entered = runtime.enter();
    Ok(trial::handlers(&Arc::new(registry), configuration, Served::Unknown).map_err(ControllerError::from)?)
}

/// What every run needs: the log, TLS, a runtime.
fn start(configuration: &Configuration) -> Result<Runtime, RunError> {
    telemetry::init(&configuration.log).map_err(|error| RunError::Start(io::Error::other(error)))?;
    secure();
    runtime(&configuration.relay).map_err(RunError::Start)
}

/// Does `work`, and lets go of what of it still holds up a thread then.
fn to_the_end<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_READS);
    done
}

/// Chooses who speaks TLS.
fn secure() {
    // An error means that somebody installed one before, which then is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A runtime with as many threads as `options` say, whatever the machine has.
fn runtime(options: &Relay) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(options.worker_threads.get()).enable_all().build()
}

async fn serve(
    registry: Registry,
    configuration: &Configuration,
    kubeconfig: Option<&Path>,
) -> Result<(), RunError> {
    let told = told_to_end().map_err(RunError::Start)?;
    let kubeconfig = kubeconfig.or(configuration.kubernetes.kubeconfig.as_deref());
    let connection = tokio::select! {
        connection = connection(kubeconfig.map(Path::to_owned)) => connection?,
        () = told.cancelled() => {
            info!("nothing runs yet: ending at once");
            std::process::exit(0);
        }
    };
    let key_files = connection.key_files.clone();
    let controller = Controller::start(registry, configuration, connection).await?;
    let stop = controller.token();
    let ending = stop.clone();
    tokio::spawn(async move {
        let path = key_files.replaced().await.display();
        warn!(%path, "the client's certificate or key was replaced: ending, to be started with the new one");
        ending.cancel();
    });
    tokio::spawn(async move {
        told.cancelled().await;
        stop.cancel();
    });
    Ok(controller.ended().await?)
}

/// The way to the API server. To make it may take long, and holds up a thread: a kubeconfig may name a program that asks for
/// credentials.
async fn connection(kubeconfig: Option<PathBuf>) -> Result<Connection, ConnectError> {
    let made = spawn_blocking(move || Handle::current().block_on(connect::connection(kubeconfig.as_deref())));
    made.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// Is cancelled by the first signal that tells the program to end; a second one ends it. They are heard on a thread of their own,
/// whatever holds up those on which it works.
fn told_to_end() -> io::Result<CancellationToken> {
    let told = CancellationToken::new();
    let first = told.clone();
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        Signals::listen()?
    };
    let listen = async move {
        signals.next().await;
        info!("a signal: ending");
        first.cancel();
        signals.next().await;
        warn!("a second signal: ending at once");
        std::process::exit(1)
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(listen))?;
    Ok(told)
}

/// The signals that tell the program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    /// Ends with the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn one_thread_works_unless_more_are_asked_for() {
        let workers = |options: &Relay| runtime(options).unwrap().metrics().num_workers();
        assert_eq!(workers(&Relay::default()), 1);
        assert_eq!(workers(&Relay { worker_threads: NonZeroUsize::new(3).unwrap(), ..Relay::default() }), 3);
    }
}
