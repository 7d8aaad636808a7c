//! `cargo xtask bench latency`: from a pod's event to its acknowledged annotation, at 20 pods per second.
//!
//! The program as it ships talks to a real API server through a proxy: the clock starts when the bytes of the event are
//! forwarded to the program, and stops when the answer to its PATCH has come. In turns with the pods, a process of the same
//! shape sends bare patches of the same body through the same proxy; its clock runs from just before each until its answer, so
//! that both sides cross the way between process and proxy twice. Before the clock starts, each side has written as many
//! pods as are then measured.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod bare;
mod cluster;
mod program;
mod proxy;
mod report;
mod wait;

use std::process::ExitCode;
use std::time::Duration;

use kube::Client;
use kube::api::PostParams;
use staffetta_apiserver::testing::RealServer;
use tokio::task::JoinSet;

use bare::Bare;
use cluster::{claim, pod, pods, versions};
use program::{Program, vif_in_memory};
use proxy::Proxy;
use report::{Row, milliseconds, number, publish};

/// The number of pods created, and of bare patches sent, per second.
const RATE: f64 = 20.0;

fn main() -> ExitCode {
    if let Some(code) = bare::served() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("latency", &runtime.block_on(run()));
    ExitCode::SUCCESS
}

async fn run() -> Vec<Row> {
    let count = number("STAFFETTA_BENCH_PODS", 3_000);
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let proxy = Proxy::start(server.kubeconfig()).await;
    let mut program = Program::start(&proxy.kubeconfig(), &vif_in_memory(0));
    program.logs("this process is the leader").await;
    let mut bare = Bare::start(&proxy.kubeconfig(), false);

    let names: Vec<_> = (0..count).map(|number| format!("bare-{number}")).collect();
    let bodies = warm_up(&client, &mut bare, &names).await;
    let ours: Vec<_> = (0..count).map(|number| format!("pod-{number}")).collect();
    let mut tasks = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(0.5 / RATE));
    for (ours, (name, body)) in ours.iter().zip(names.iter().zip(bodies)) {
        ticks.tick().await;
        let (api, pod) = (pods(&client), pod(ours));
        tasks.spawn(async move {
            api.create(&PostParams::default(), &pod).await.expect("a pod can be created");
        });
        ticks.tick().await;
        bare.patch(name, &body).await;
    }
    tasks.join_all().await;
    proxy.passed.until_patched(&ours, 1).await;
    let since_event = |name: &String| proxy.passed.acknowledged(name)[0] - proxy.passed.delivered(name);
    let ours = ours.iter().map(since_event).collect();
    let theirs = bare.patched(count).await.into_iter().map(|patched| patched.took).collect();
    rows(ours, theirs)
}

/// Warms both sides: the program gives these pods their VIFs, and then the bare process changes each of them once. Returns the
/// bodies that it is to send next, which change each pod back: a patch that changes nothing is cheaper.
async fn warm_up(client: &Client, bare: &mut Bare, names: &[String]) -> Vec<serde_json::Value> {
    cluster::create(client, names).await;
    cluster::until_wired(client, names.len(), false).await;
    // The program replaces an annotation that describes a VIF of another pod, but not another text for the same VIF.
    for (name, body) in names.iter().zip(bodies(client, names, |text| format!("{text} ")).await) {
        bare.patch(name, &body).await;
    }
    bare.patched(names.len()).await;
    bodies(client, names, |text| text.trim_end().to_owned()).await
}

/// The bodies that change the text of the annotation of each of these pods.
async fn bodies(client: &Client, names: &[String], change: fn(&str) -> String) -> Vec<serde_json::Value> {
    let versions = versions(client).await;
    let body = |name: &String| {
        let (uid, version, annotation) = &versions[name];
        claim(uid, version, &change(annotation.as_deref().expect("the pod has a VIF")))
    };
    names.iter().map(body).collect()
}

fn rows(mut ours: Vec<Duration>, mut theirs: Vec<Duration>) -> Vec<Row> {
    ours.sort();
    theirs.sort();
    let at = |sorted: &[Duration], percent: usize| milliseconds(sorted[(sorted.len() - 1) * percent / 100]);
    let (p50, p99) = ((at(&ours, 50), at(&theirs, 50)), (at(&ours, 99), at(&theirs, 99)));
    vec![
        Row::new("event to acknowledged annotation, p50", "ms", p50.0)
            .against(p50.1)
            .goal("at most 1.2 of a bare PATCH", p50.0 <= 1.2 * p50.1),
        Row::new("event to acknowledged annotation, p99", "ms", p99.0)
            .against(p99.1)
            .goal("at most 1.5 of a bare PATCH + 2 ms", p99.0 <= 1.5 * p99.1 + 2.0),
        Row::new("pods", "1", ours.len() as f64).against(theirs.len() as f64),
    ]
}
