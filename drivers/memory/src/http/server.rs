//! The server of a simulated cloud. It listens on an address from its start, and stops when it is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::cloud::ServedCloud;
use super::routes;
use crate::MemoryOptions;

/// The number of threads that execute calls.
const WORKERS: usize = 2;

/// The options of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address on which the server listens; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The maximum number of effects (changes of the simulated cloud) in the log, of about 350 bytes each. The oldest are dropped, and a
    /// client that requests them gets an error.
    pub log_capacity: NonZeroUsize,
    /// The options of the simulated cloud.
    pub memory: MemoryOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            log_capacity: NonZeroUsize::new(500_000).expect("it is not zero"),
            memory: MemoryOptions::default(),
        }
    }
}

/// A running server. Dropping it closes its socket and all connections.
///
/// The server has its own threads and its own clock, so it does not depend on the asynchronous runtime of its user, which may be busy or
/// paused.
pub struct Server {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server with an empty cloud. If it cannot listen on the address, or cannot start its threads, returns an error.
    pub fn start(options: &ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {}: {error}", options.listen))
        })?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
        let cloud = Arc::new(ServedCloud::new(options.memory.clone(), options.log_capacity));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("simulated-network".into())
            .spawn(move || serve(&runtime, listener, cloud, stopped))?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the URL of the server, such as `http://127.0.0.1:9697`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Serves until `stopped` resolves. The end of the runtime then closes the connections.
fn serve(runtime: &Runtime, listener: TcpListener, cloud: Arc<ServedCloud>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            // axum survives errors of the listener.
            _ = routes::serve(listener, cloud) => {}
            _ = stopped => {}
        }
    });
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
