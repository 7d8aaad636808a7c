//! The network as a server: it is started, has an address, and ends.

mod book;
mod desk;
mod http;
mod pods;
mod services;
mod world;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;

use staffetta_driver::memory::MemoryOptions;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::world::World;

/// How many threads serve calls.
const WORKERS: usize = 2;

/// How a network is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How many entries of the ledger it remembers, about 350 bytes each. Who asks for older ones is told so.
    pub remembered: NonZeroUsize,
    /// What there is in it.
    pub memory: MemoryOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            remembered: NonZeroUsize::new(500_000).expect("it is not zero"),
            memory: MemoryOptions::default(),
        }
    }
}

/// A running network. It ends when it is dropped: nothing is listened to any more, and all connections are cut.
///
/// It has threads and a clock of its own, so that neither a busy nor a paused runtime of its users disturbs it.
pub struct Server {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts an empty network. The error is that of the address, on which it cannot listen, or of the threads.
    pub fn start(options: &Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {}: {error}", options.listen))
        })?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
        let world = Arc::new(World::new(options.memory.clone(), options.remembered));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("simulated-network".into())
            .spawn(move || serve(&runtime, listener, world, stopped))?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    /// The address: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Serves until it is told to stop; the end of the runtime ends the connections too.
fn serve(runtime: &Runtime, listener: TcpListener, world: Arc<World>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            // An error would be that of the listener, which axum outlives.
            _ = http::serve(listener, world) => {}
            // The server says so, or is gone.
            _ = stopped => {}
        }
    });
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; there is nothing left to end.
            let _ = thread.join();
        }
    }
}
