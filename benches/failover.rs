//! `cargo xtask bench failover`: the time without a write after the leader is killed.
//!
//! Two processes with the default lease on a real API server, and pods that are created all the time. The leader is killed
//! at another moment between two renewals each time. The time runs from just before SIGKILL until the watch of the benchmark
//! shows a VIF on a pod that was created after the leader was dead.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod cluster;
mod program;
mod report;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use staffetta::config::LeaderElectionOptions;
use staffetta_apiserver::testing::RealServer;
use tokio::sync::mpsc;

use program::{Program, vif_in_memory};
use report::{Row, largest, median, number, publish};
use wait::PATIENCE;

/// The time between two pods.
const PACE: Duration = Duration::from_millis(100);
/// The allowance for a take-over after the lease expired.
const ALLOWANCE: Duration = Duration::from_secs(2);

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("failover", &runtime.block_on(failover()));
}

async fn failover() -> Vec<Row> {
    let rounds = number("STAFFETTA_BENCH_ROUNDS", 10);
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let created = Arc::new(AtomicUsize::new(0));
    let creator = tokio::spawn(create_all_the_time(client.clone(), Arc::clone(&created)));
    let mut plugged = plugged(&client);

    let retry_period: Duration = LeaderElectionOptions::default().retry_period.into();
    let start = || Program::start(server.kubeconfig(), &vif_in_memory(0));
    let mut leader = start();
    leader.logs("this process is the leader").await;
    let mut gaps = Vec::new();
    for round in 0..rounds {
        let mut standby = start();
        standby.logs("this process is a standby").await;
        first_plugged(&mut plugged, created.load(Ordering::SeqCst)).await;
        tokio::time::sleep(retry_period * u32::try_from(round % 10).unwrap_or_default() / 10).await;
        let killed = Instant::now();
        leader.kill().await;
        // The leader wrote to pods that exist by now.
        let seen = first_plugged(&mut plugged, created.load(Ordering::SeqCst)).await;
        gaps.push((seen - killed).as_secs_f64());
        standby.logs("this process is the leader").await;
        leader = standby;
    }
    leader.kill().await;
    creator.abort();
    rows(gaps)
}

fn rows(gaps: Vec<f64>) -> Vec<Row> {
    let lease: Duration = LeaderElectionOptions::default().lease_duration.into();
    let most = (lease + ALLOWANCE).as_secs_f64();
    let (rounds, longest) = (gaps.len(), largest(&gaps));
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

/// The numbers of the pods that show a VIF, each with the time at which the watch delivered it.
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
            // The receiver is gone when the benchmark has ended.
            let _ = sender.send((number, Instant::now()));
        }
        std::future::ready(())
    }));
    receiver
}

/// Waits until the first pod with a greater number shows its VIF.
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
    tokio::time::timeout(PATIENCE, first).await.expect("the new leader writes")
}
