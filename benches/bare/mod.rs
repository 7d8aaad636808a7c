//! Bare patches from a process of the program's shape: the same client library and allocator, one thread that works, and a watch that
//! is read where that is asked for.

#![allow(dead_code, reason = "each benchmark takes what it needs")]
#![allow(clippy::print_stdout, reason = "a child tells its parent what it measured")]

use std::ffi::OsString;
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
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster;

/// That of the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Says that this process is to send bare patches, and by which kubeconfig.
const ROLE: &str = "STAFFETTA_BENCH_BARE";

/// Says that it reads a watch of the pods meanwhile.
const WATCHING: &str = "STAFFETTA_BENCH_WATCHING";

/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running process that patches what it is told.
pub(crate) struct Bare {
    _child: Child,
    told: ChildStdin,
    patched: JoinHandle<Vec<Patched>>,
}

/// A patch that was accepted.
pub(crate) struct Patched {
    /// How long it took, from just before it was sent.
    pub(crate) took: Duration,
    /// When the process had said so.
    pub(crate) at: Instant,
}

impl Bare {
    /// Starts this program again; where `watching`, it reads a watch of the pods meanwhile. Its `main` has to begin with [`role`].
    pub(crate) fn start(kubeconfig: &Path, watching: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.env(ROLE, kubeconfig).envs(watching.then_some((WATCHING, "yes")));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started again");
        let told = child.stdin.take().expect("it is piped");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let patched = tokio::spawn(async move {
            let mut patched = Vec::new();
            while let Ok(Some(line)) = lines.next_line().await {
                let took = Duration::from_secs_f64(line.parse().expect("a line is a time"));
                patched.push(Patched { took, at: Instant::now() });
            }
            patched
        });
        Self { _child: child, told, patched }
    }

    /// Has a pod patched with this body, and waits for nothing.
    pub(crate) async fn patch(&mut self, name: &str, body: &Value) {
        let line = format!("{}\n", serde_json::json!([name, body]));
        self.told.write_all(line.as_bytes()).await.expect("it reads what it is told");
    }

    /// The patches that were accepted, in that order. Comes when all are answered.
    pub(crate) async fn patched(self) -> Vec<Patched> {
        let Self { _child, told, patched } = self;
        drop(told);
        let patched = tokio::time::timeout(PATIENCE, patched).await.expect("it ends when it is told no more");
        patched.expect("it wrote down times")
    }
}

/// The kubeconfig by which this process is to send bare patches, where it is one that [`Bare::start`] started.
pub(crate) fn role() -> Option<OsString> {
    std::env::var_os(ROLE)
}

/// Patches what the parent says, a line each and so many at a time, until it says no more.
pub(crate) fn serve(kubeconfig: &Path) -> ExitCode {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let client = runtime.block_on(cluster::client(kubeconfig));
    if std::env::var_os(WATCHING).is_some() {
        runtime.spawn(watch(client.clone()));
    }
    let permits = Arc::new(Semaphore::new(cluster::IN_FLIGHT));
    let mut patches = JoinSet::new();
    for line in std::io::stdin().lines() {
        let (line, client) = (line.expect("the parent writes text"), client.clone());
        let permits = Arc::clone(&permits);
        let patch = async move {
            let _permit = permits.acquire().await.expect("nobody closes it");
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
