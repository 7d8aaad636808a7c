//! `cargo bench --bench memory`: what the process holds when 50,000 pods are watched and annotated.
//!
//! Beside it, in the same run and over the same pods, a process with nothing but kube-runtime's `reflector::Store<Pod>`, which
//! is how most controllers begin. The simulated network lives in the process of the benchmark. Each of the two is this
//! program started again, so that the controller is the one that ships, with one driver more.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

mod cluster;
mod report;
#[cfg(not(feature = "simulated"))]
#[path = "../src/assembly/simulated.rs"]
mod simulated;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{reflector, watcher};
use staffetta_apiserver::testing::RealServer;
use staffetta_driver::memory::MemoryOptions;
use staffetta_simulated::{Options, Server};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use report::{Row, tell};

/// That of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Says which of the two this process is to be.
const ROLE: &str = "STAFFETTA_BENCH_ROLE";

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("controller") => staffetta::run(registry()),
        Ok(kubeconfig) => runtime().block_on(reflect(Path::new(kubeconfig))),
        Err(_) => {
            tell("memory", &runtime().block_on(measure()));
            ExitCode::SUCCESS
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("threads can be started")
}

/// All that ships, and the drivers of a network in another process.
fn registry() -> staffetta_handler::Registry {
    #[cfg_attr(feature = "simulated", expect(unused_mut, reason = "they are in it already"))]
    let mut registry = staffetta::assembly::registry();
    #[cfg(not(feature = "simulated"))]
    simulated::drivers(&mut registry);
    registry
}

/// Keeps all pods, as they are, for ever.
async fn reflect(kubeconfig: &Path) -> ExitCode {
    let client = cluster::client(kubeconfig).await;
    let (store, writer) = reflector::store::<Pod>();
    let pods = watcher(Api::all(client), watcher::Config::default());
    let mut events = std::pin::pin!(reflector(writer, pods));
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::InitDone) = event {
            println!("{}", store.len());
        }
    }
    ExitCode::FAILURE
}

async fn measure() -> Vec<Row> {
    let pods = cluster::number("STAFFETTA_BENCH_PODS", 50_000);
    let rest = Duration::from_secs(cluster::number("STAFFETTA_BENCH_REST", 60) as u64);
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let names: Vec<_> = (0..pods).map(|number| format!("pod-{number}")).collect();
    cluster::create(&client, &names).await;

    let memory = MemoryOptions { activation_delay_ms: 0, ..MemoryOptions::default() };
    let network = Server::start(&Options { memory, ..Options::default() }).expect("a port is free");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("staffetta.toml");
    let text = format!(
        "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_project_driver = \"simulated\"\npod_subnets_driver = \"simulated\"\n\
         pod_security_groups_driver = \"simulated\"\npod_vif_driver = \"simulated\"\n[simulated]\nurl = \"{}\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
        network.url()
    );
    std::fs::write(&file, text).expect("the folder can be written");
    let mut controller = child("controller");
    controller.args(["run", "--config"]).arg(&file).arg("--kubeconfig").arg(server.kubeconfig());
    let controller = controller.spawn().expect("this program can be started again");
    until_annotated(&client, pods).await;
    tokio::time::sleep(rest).await;
    let (ours, peak) = resident(&controller);
    drop(controller);

    let mut store =
        child(server.kubeconfig()).stdout(Stdio::piped()).spawn().expect("it can be started again");
    let mut lines = BufReader::new(store.stdout.take().expect("it is piped")).lines();
    let kept = lines.next_line().await.expect("it writes text").expect("it lists all pods");
    assert_eq!(kept.parse(), Ok(pods));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (theirs, their_peak) = resident(&store);
    vec![
        Row::new(format!("resident, {pods} pods annotated"), "MiB", ours)
            .against(theirs)
            .goal("at most a tenth of a Store<Pod>", ours <= theirs / 10.0),
        Row::new("peak", "MiB", peak).against(their_peak),
    ]
}

fn child(role: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.env(ROLE, role).env("STAFFETTA_LOG__LEVEL", "error").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Waits until each pod has its annotation.
async fn until_annotated(client: &kube::Client, pods: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let annotated =
            cluster::versions(client).await.into_values().filter(|(_, _, text)| text.is_some()).count();
        if annotated == pods {
            return;
        }
        assert!(Instant::now() < deadline, "{annotated} of {pods} pods are annotated");
    }
}

/// What a process holds now, and the most that it ever held, in MiB.
fn resident(process: &Child) -> (f64, f64) {
    let id = i32::try_from(process.id().expect("it runs")).expect("a process id fits");
    let status = procfs::process::Process::new(id).and_then(|process| process.status()).expect("it runs");
    let mebibytes = |kibibytes: Option<u64>| kibibytes.unwrap_or_default() as f64 / 1024.0;
    (mebibytes(status.vmrss), mebibytes(status.vmhwm))
}
