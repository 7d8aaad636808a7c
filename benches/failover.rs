//! `cargo bench --bench failover`: how long nobody writes when the leader is killed.
//!
//! Two processes with the default lease on a real API server, and pods that are created all the time. The leader is killed
//! at another moment of its renewals each time; measured is from just before SIGKILL until the watch of the benchmark shows
//! a VIF on a pod that was created when the leader was dead already.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod cluster;
mod program;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use staffetta::config::LeaderElection;
use staffetta_apiserver::testing::RealServer;
use tokio::sync::mpsc;

use program::Program;
use report::{Row, median, tell};

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The drivers answer at once.
const SECTIONS: &str = "[memory]\nactivation_delay_ms = 0\n";
/// The time between two pods.
const PACE: Duration = Duration::from_millis(100);
/// What a take-over may take after the lease has run out.
const ALLOWANCE: Duration = Duration::from_secs(2);

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let rows = runtime.block_on(failover());
    tell("failover", &rows);
}

async fn failover() -> Vec<Row> {
    let rounds = cluster::number("STAFFETTA_BENCH_ROUNDS", 10);
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let created = Arc::new(AtomicUsize::new(0));
    let creator = tokio::spawn(create_all_the_time(client.clone(), Arc::clone(&created)));
    let mut plugged = plugged(&client);

    let retry_period: Duration = LeaderElection::default().retry_period.into();
    let mut leader = Program::start(server.kubeconfig(), SECTIONS);
    leader.says("this process leads").await;
    let mut gaps = Vec::new();
    for round in 0..rounds {
        let mut standby = Program::start(server.kubeconfig(), SECTIONS);
        standby.says("standing by").await;
        first_plugged(&mut plugged, created.load(Ordering::SeqCst)).await;
        tokio::time::sleep(retry_period * u32::try_from(round % 10).unwrap_or_default() / 10).await;
        let killed = Instant::now();
        leader.child.kill().await.expect("it can be killed");
        // Whatever the leader sent was for pods that exist by now.
        let seen = first_plugged(&mut plugged, created.load(Ordering::SeqCst)).await;
        gaps.push((seen - killed).as_secs_f64());
        standby.says("this process leads").await;
        leader = standby;
    }
    leader.child.kill().await.expect("it can be killed");
    creator.abort();
    rows(gaps)
}

fn rows(gaps: Vec<f64>) -> Vec<Row> {
    let lease: Duration = LeaderElection::default().lease_duration.into();
    let most = (lease + ALLOWANCE).as_secs_f64();
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    let rounds = gaps.len();
    vec![
        Row::new(format!("SIGKILL to the next write, longest of {rounds}"), "s", longest)
            .goal(format!("at most {most} (the lease and 2 s)"), longest <= most),
        Row::new(format!("SIGKILL to the next write, median of {rounds}"), "s", median(gaps)),
    ]
}

/// Creates pods, numbered from 1; `created` is the number of the last that exists or is being created.
async fn create_all_the_time(client: Client, created: Arc<AtomicUsize>) {
    let pods = cluster::pods(&client);
    let mut pace = tokio::time::interval(PACE);
    loop {
        pace.tick().await;
        let number = created.fetch_add(1, Ordering::SeqCst) + 1;
        let pod = cluster::pod(&format!("pod-{number}"));
        pods.create(&PostParams::default(), &pod).await.expect("a pod can be created");
    }
}

/// The numbers of the pods that show a VIF, as the watch tells of them, and when it did.
fn plugged(client: &Client) -> mpsc::UnboundedReceiver<(usize, Instant)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let pods = Api::<PartialObjectMeta<Pod>>::namespaced(client.clone(), "default");
    let watch = watcher(pods, watcher::Config::default());
    tokio::spawn(watch.for_each(move |event| {
        let applied = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(pod.metadata),
            _ => None,
        };
        let annotated = applied.filter(|meta| {
            meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(cluster::VIF))
        });
        let number = annotated.and_then(|meta| meta.name?.strip_prefix("pod-")?.parse().ok());
        if let Some(number) = number {
            // Nobody listens any more when the benchmark has ended.
            let _ = sender.send((number, Instant::now()));
        }
        std::future::ready(())
    }));
    receiver
}

/// When the first pod with a greater number showed its VIF.
async fn first_plugged(
    plugged: &mut mpsc::UnboundedReceiver<(usize, Instant)>,
    greater_than: usize,
) -> Instant {
    let first = async {
        loop {
            let (number, at) = plugged.recv().await.expect("the watch goes on");
            if number > greater_than {
                return at;
            }
        }
    };
    tokio::time::timeout(PATIENCE, first).await.expect("somebody writes in the end")
}
