//! Bare patches from a process of the program's shape: the same client library and allocator, one worker thread, and a watch
//! that is read where a benchmark asks for it.

#![allow(dead_code, reason = "each benchmark takes what it needs")]
#![allow(clippy::print_stdout, reason = "a child process prints what it measured")]

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use mimalloc::MiMalloc;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::cluster;
use crate::program::{Usage, again};
use crate::wait::PATIENCE;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The roles of the process: it patches, or it patches and reads a watch of the pods.
const PATCHES: &str = "patches";
const WATCHES: &str = "watches";

/// A running process that sends the patches that are passed to it.
pub(crate) struct Bare {
    child: Child,
    bodies: ChildStdin,
    accepted: mpsc::UnboundedReceiver<Patched>,
}

/// A patch that was accepted.
pub(crate) struct Patched {
    /// The duration, from just before the request was sent.
    pub(crate) took: Duration,
    /// The time at which the process reported it.
    pub(crate) at: Instant,
}

impl Bare {
    /// Starts this benchmark again; if `watching`, it reads a watch of the pods meanwhile. Its `main` has to begin with
    /// [`served`].
    pub(crate) fn start(kubeconfig: &Path, watching: bool) -> Self {
        let mut child = again(if watching { WATCHES } else { PATCHES })
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let bodies = child.stdin.take().expect("it is piped");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let took = Duration::from_secs_f64(line.parse().expect("a line is a time"));
                // The receiver is gone when the benchmark is done with the process.
                let _ = sender.send(Patched { took, at: Instant::now() });
            }
        });
        Self { child, bodies, accepted }
    }

    /// Has a pod patched with this body, and does not wait for it.
    pub(crate) async fn patch(&mut self, name: &str, body: &Value) {
        let line = format!("{}\n", serde_json::json!([name, body]));
        self.bodies.write_all(line.as_bytes()).await.expect("the process reads its input");
    }

    /// The next `count` patches that are accepted, in that order.
    pub(crate) async fn patched(&mut self, count: usize) -> Vec<Patched> {
        let mut patched = Vec::with_capacity(count);
        while patched.len() < count {
            let next = tokio::time::timeout(PATIENCE, self.accepted.recv()).await;
            patched.push(next.expect("patches are accepted in time").expect("each patch is accepted"));
        }
        patched
    }

    /// The usage of CPU and memory so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(&self.child)
    }
}

/// Serves in the role of a process that [`Bare::start`] started; `None` in the benchmark itself.
pub(crate) fn served() -> Option<ExitCode> {
    let role = crate::program::role()?;
    let kubeconfig = std::env::args_os().nth(1).expect("it was started with a kubeconfig");
    Some(serve(Path::new(&kubeconfig), role == WATCHES))
}

/// Sends the patches of the standard input, one per line, a fixed number at a time, until the input ends.
fn serve(kubeconfig: &Path, watching: bool) -> ExitCode {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let client = runtime.block_on(cluster::client(kubeconfig));
    if watching {
        runtime.spawn(watch(client.clone()));
    }
    let permits = Arc::new(Semaphore::new(cluster::IN_FLIGHT));
    let mut patches = JoinSet::new();
    for line in std::io::stdin().lines() {
        let (line, client) = (line.expect("the parent writes text"), client.clone());
        let permits = Arc::clone(&permits);
        let patch = async move {
            let _permit = permits.acquire().await.expect("the semaphore is never closed");
            let (name, body): (String, Value) = serde_json::from_str(&line).expect("a line is a patch");
            let begun = Instant::now();
            cluster::patch(&client, &name, &body).await;
            println!("{}", begun.elapsed().as_secs_f64());
        };
        patches.spawn_on(patch, runtime.handle());
    }
    runtime.block_on(patches.join_all());
    ExitCode::SUCCESS
}

/// Reads the pods as the program does, which keeps nothing of them but their metadata.
async fn watch(client: Client) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, "default");
    watcher(pods, watcher::Config::default()).for_each(async |event| drop(event)).await;
}
