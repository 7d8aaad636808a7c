//! `cargo bench --bench latency`: from a pod's event to its acknowledged annotation, at 20 pods a second.
//!
//! The program as it ships talks to a real API server through a proxy that looks at what passes: the clock starts when the
//! bytes of the event go on to the program, and stops when the answer to its PATCH has come. In turns with the pods, a
//! process of the same shape sends bare patches of the same body through the same proxy; its clock runs from just before
//! each until its answer, so that on both sides the way between process and proxy is gone twice.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod bare;
mod cluster;
mod program;
mod proxy;
mod report;
mod spy;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kube::Client;
use kube::api::PostParams;
use staffetta_apiserver::testing::RealServer;
use tokio::task::JoinSet;

use bare::Bare;
use cluster::{claim, pod, pods, versions};
use program::Program;
use proxy::Proxy;
use report::{Row, tell};
use spy::Spy;

/// How many pods are created, and how many bare patches are sent, in a second.
const RATE: f64 = 20.0;

fn main() -> ExitCode {
    if let Some(kubeconfig) = bare::role() {
        return bare::serve(Path::new(&kubeconfig));
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    tell("latency", &runtime.block_on(run()));
    ExitCode::SUCCESS
}

async fn run() -> Vec<Row> {
    let count = cluster::number("STAFFETTA_BENCH_PODS", 3_000);
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let spy = Spy::default();
    let proxy = Proxy::start(spy.watch(cluster::client(server.kubeconfig()).await)).await;
    let mut program = Program::start(&proxy.kubeconfig(), "[memory]\nactivation_delay_ms = 0\n");
    program.says("this process leads").await;

    let bare: Vec<_> = (0..count).map(|number| format!("bare-{number}")).collect();
    let ours: Vec<_> = (0..count).map(|number| format!("pod-{number}")).collect();
    let bodies = prepare(&client, &bare).await;
    let mut theirs = Bare::start(&proxy.kubeconfig(), false);
    let mut tasks = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(0.5 / RATE));
    for (ours, (name, body)) in ours.iter().zip(bodies) {
        ticks.tick().await;
        let (api, pod) = (pods(&client), pod(ours));
        tasks.spawn(async move {
            api.create(&PostParams::default(), &pod).await.expect("a pod can be created");
        });
        ticks.tick().await;
        theirs.patch(&name, &body).await;
    }
    tasks.join_all().await;
    let ours = spy.until(&ours).await;
    let theirs: Vec<_> = theirs.patched().await.into_iter().map(|patched| patched.took).collect();
    assert_eq!(theirs.len(), count, "each bare patch is accepted");
    rows(ours, theirs)
}

/// Pods that no handler touches any more, and the bodies by which they are patched.
async fn prepare(client: &Client, names: &[String]) -> Vec<(String, serde_json::Value)> {
    cluster::create(client, names).await;
    let annotation = loop {
        let state = versions(client).await;
        let annotated: Vec<_> = state.values().filter_map(|(_, _, annotation)| annotation.clone()).collect();
        if let Some(text) = annotated.first().filter(|_| annotated.len() == names.len()) {
            break text.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    // Another text of the same length: a patch that changes nothing is cheaper.
    let changed = annotation.replacen("fa:16:3e", "fa:16:3f", 1);
    assert_ne!(changed, annotation, "the annotation holds a hardware address");
    let versions = versions(client).await;
    let body = |name: &String| {
        let (uid, version, _) = &versions[name];
        (name.clone(), claim(uid, version, &changed))
    };
    names.iter().map(body).collect()
}

fn rows(mut ours: Vec<Duration>, mut theirs: Vec<Duration>) -> Vec<Row> {
    ours.sort();
    theirs.sort();
    let at = |sorted: &[Duration], percent: usize| {
        sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1000.0
    };
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
