//! `cargo bench --bench annotate`: pods that exist get their VIFs from a real API server's point of view.
//!
//! Writes a second against bare patches of the same body by the same client library, the requests that this took by the
//! server's own metrics, the CPU time that an event costs, and the requests of a pod's whole life by the server's audit log.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod bare;
mod cluster;
mod controller;
mod program;
mod report;
mod requests;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kube::Client;
use staffetta_apiserver::testing::RealServer;

use bare::Bare;
use cluster::IN_FLIGHT;
use controller::Controller;
use report::{Row, median, tell};
use requests::Requests;

fn main() -> ExitCode {
    if let Some(kubeconfig) = bare::role() {
        return bare::serve(Path::new(&kubeconfig));
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let mut rows = runtime.block_on(throughput());
    rows.extend(runtime.block_on(requests_of_a_life()));
    tell("annotate", &rows);
    ExitCode::SUCCESS
}

/// What one run reached.
struct Run {
    writes_a_second: f64,
    cpu_ms_an_event: f64,
    requests: Requests,
}

/// Ours and theirs in turns, over the same pods.
async fn throughput() -> Vec<Row> {
    let names = names("pod", cluster::number("STAFFETTA_BENCH_PODS", 10_000));
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    cluster::create(&client, &names).await;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut annotations = BTreeMap::new();
    for _ in 0..cluster::number("STAFFETTA_BENCH_PAIRS", 5) {
        ours.push(annotate(server.kubeconfig(), &client, names.len()).await);
        if annotations.is_empty() {
            let state = cluster::versions(&client).await.into_iter();
            annotations = state.filter_map(|(name, (_, _, annotation))| Some((name, annotation?))).collect();
            assert_eq!(annotations.len(), names.len(), "each pod has its VIF");
        }
        cluster::reset(&client, &names).await;
        bare.push(bare_patches(server.kubeconfig(), &client, &annotations).await);
        cluster::reset(&client, &names).await;
    }
    let ratio = median(ours.iter().zip(&bare).map(|(ours, bare)| ours.writes_a_second / bare).collect());
    let cpu = median(ours.iter().map(|run| run.cpu_ms_an_event).collect());
    let writes = median(ours.iter().map(|run| run.writes_a_second).collect());
    let runs = ours.len() as f64;
    let all = ours.iter().fold(Requests::default(), |all, run| all + run.requests);
    let writes_a_pod = all.writes / (runs * names.len() as f64);
    let (lists, others) = (all.lists / runs, all.others);
    vec![
        Row::new("VIFs written down", "1/s", writes)
            .against(median(bare))
            .goal(format!("at least 0.9 of bare PATCHes, {IN_FLIGHT} in flight"), ratio >= 0.9),
        Row::new("the same, median of the pairs", "ratio", ratio),
        Row::new("own CPU a pod event", "ms", cpu).goal("at most 0.2", cpu <= 0.2),
        Row::new("writes a pod, all runs", "1", writes_a_pod).goal("at most 1", writes_a_pod <= 1.0),
        Row::new("pages of the list of pods, a run", "1", lists),
        Row::new("other reads, and Events, all runs", "1", others).goal("0", others == 0.0),
    ]
}

/// Starts a controller and waits until each pod has its VIF, and it has heard of each. As the controller's own watch begins when
/// its list is all but done, a process that does nothing else reads one meanwhile.
async fn annotate(kubeconfig: &Path, client: &Client, pods: usize) -> Run {
    let (watcher, before) = watcher(kubeconfig, client).await;
    let controller = Controller::start(kubeconfig, "[memory]\nactivation_delay_ms = 0\n").await;
    let from = controller.until_patched(begun(pods)).await;
    let to = controller.until_patched(pods).await;
    let writes_a_second = (to.patches - from.patches) / (to.at - from.at).as_secs_f64();
    drop(watcher);
    controller.until_heard(pods).await;
    let cpu_ms_an_event = controller.cpu().as_secs_f64() * 1000.0 / (2 * pods) as f64;
    controller.stop().await;
    let requests = requests::answered(client).await - before;
    Run { writes_a_second, cpu_ms_an_event, requests }
}

/// After how many writes the clock starts, on both sides: to start and to list are left out.
fn begun(pods: usize) -> usize {
    pods / 100
}

/// A process that reads a watch of the pods, and what the server has answered when that begins.
async fn watcher(kubeconfig: &Path, client: &Client) -> (Bare, Requests) {
    let before = requests::answered(client).await;
    let watcher = Bare::start(kubeconfig, true);
    loop {
        let now = requests::answered(client).await;
        if now.lists > before.lists {
            return (watcher, now);
        }
    }
}

/// The same bodies, written by a process of the program's shape that does nothing else, while it reads one watch of the pods.
async fn bare_patches(kubeconfig: &Path, client: &Client, annotations: &BTreeMap<String, String>) -> f64 {
    let versions = cluster::versions(client).await;
    let mut bare = Bare::start(kubeconfig, true);
    for (name, annotation) in annotations {
        let (uid, version, _) = &versions[name];
        bare.patch(name, &cluster::claim(uid, version, annotation)).await;
    }
    let patched = bare.patched().await;
    assert_eq!(patched.len(), annotations.len(), "each patch is accepted");
    let [first, .., last] = &patched[begun(patched.len())..] else { panic!("there are several") };
    (patched.len() - begun(patched.len()) - 1) as f64 / (last.at - first.at).as_secs_f64()
}

/// What a pod costs from its creation to its end, counted by the server.
async fn requests_of_a_life() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY).expect("the folder can be written");
    let flags =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let server = RealServer::launch(&flags.each_ref().map(String::as_str)).await;
    let client = cluster::client(server.kubeconfig()).await;
    let mut rows = Vec::new();
    for (words, delay, most) in [("active at once", 0, 1.0), ("active after 300 ms", 300, 2.0)] {
        let names = names(&format!("life-{delay}"), 300);
        let before = requests::logged(&log);
        let options = format!("[memory]\nactivation_delay_ms = {delay}\n");
        let controller = Controller::start(server.kubeconfig(), &options).await;
        cluster::create(&client, &names).await;
        until_active(&client, &names).await;
        let made = requests::logged(&log);
        cluster::end(&client, &names).await;
        let ended = requests::logged(&log);
        controller.stop().await;
        let pods = names.len() as f64;
        let writes = (made - before).writes / pods;
        let release = (ended - made).writes / pods;
        let (lists, others) = ((ended - before).lists, (ended - before).others);
        rows.push(
            Row::new(format!("writes a pod, {words}"), "1", writes)
                .goal(format!("at most {most}"), writes <= most),
        );
        rows.push(Row::new("writes a pod, its deletion", "1", release).goal("at most 1", release <= 1.0));
        rows.push(Row::new("lists of pods", "1", lists).goal("1, at start", lists <= 1.0));
        rows.push(Row::new("other reads, and Events", "1", others).goal("0", others == 0.0));
    }
    rows
}

/// Waits until each pod's VIF is active.
async fn until_active(client: &Client, names: &[String]) {
    let active = |annotation: &str| {
        annotation.contains(r#""active":true"#) || annotation.contains(r#""active": true"#)
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let versions = cluster::versions(client).await;
        if names.iter().all(|name| versions[name].2.as_deref().is_some_and(active)) {
            return;
        }
        assert!(Instant::now() < deadline, "not each pod got an active VIF");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Each request for a resource, once it is answered.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{ level: Metadata }]
";

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}
