//! The server of a simulated cloud. It listens on an address from its start, and stops when it is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

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
    /// The options of the simulated cloud.
    pub memory: MemoryOptions,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 0).into(), memory: MemoryOptions::default() }
    }
}

/// A running HTTP server of a simulated cloud. Dropping it closes its socket and all connections.
///
/// The server has its own threads and its own clock, so it does not depend on the asynchronous runtime of its user, which may be busy or
/// paused.
pub struct Server {
    url: String,
    /// The threads of the server; `None` while it is being dropped.
    runtime: Option<Runtime>,
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
        runtime.spawn(routes::serve(listener, Arc::new(ServedCloud::new(options.memory.clone()))));
        Ok(Self { url, runtime: Some(runtime) })
    }

    /// Returns the URL of the server, such as `http://127.0.0.1:9697`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let runtime = self.runtime.take();
        // The drop waits for the threads of the runtime, which is forbidden in an asynchronous context.
        let _ = std::thread::spawn(|| drop(runtime)).join();
    }
}
