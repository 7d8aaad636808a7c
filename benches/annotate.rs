//! `cargo xtask bench annotate`: pods that exist get their VIFs from a real API server's point of view.
//!
//! Writes per second and CPU time per pod written, both beside bare patches of the same bodies by the same client library, and with
//! traces beside without; the requests that this took, by the server's own metrics; and the requests of a pod's whole life, by the server's audit log.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod bare;
mod cluster;
mod controller;
mod program;
mod report;
mod requests;
mod wait;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use kube::Client;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use staffetta_apiserver::testing::RealServer;

use bare::Bare;
use cluster::IN_FLIGHT;
use controller::Controller;
use report::{Row, median, milliseconds, number, publish};
use requests::Requests;

/// The CPU time that writing a pod may cost: 0.2 ms for each of its two events, its listing and the change that the write makes.
const CPU_MS_A_POD: f64 = 0.4;

fn main() -> ExitCode {
    if let Some(code) = bare::served() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let mut rows = runtime.block_on(throughput());
    rows.extend(runtime.block_on(requests_of_a_life()));
    publish("annotate", &rows);
    ExitCode::SUCCESS
}

/// The writes per second of one run, and the CPU time in milliseconds that each pod cost.
struct Run {
    writes_a_second: f64,
    cpu_ms_a_pod: f64,
}

/// The turns of a round.
#[derive(Clone, Copy)]
enum Round {
    /// The controller without traces.
    Ours,
    /// The controller with traces.
    Traced,
    /// The bare patches.
    Bare,
}

/// Ours and theirs in turns, over the same pods. Every second round is in reverse order, so that none profits from its place.
async fn throughput() -> Vec<Row> {
    let names = names("pod", number("STAFFETTA_BENCH_PODS", 10_000));
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    cluster::create(&client, &names).await;
    let collector = Collector::start().await;
    let (mut ours, mut traced, mut bare, mut all) = (Vec::new(), Vec::new(), Vec::new(), Requests::default());
    let mut annotations = BTreeMap::new();
    let mut rounds = [Round::Ours, Round::Traced, Round::Bare];
    for _ in 0..number("STAFFETTA_BENCH_PAIRS", 6) {
        for round in rounds {
            match round {
                Round::Ours => {
                    let (run, requests) = annotate(server.kubeconfig(), &client, names.len(), "").await;
                    ours.push(run);
                    all = all + requests;
                }
                Round::Traced => {
                    let section = collector.section();
                    traced.push(annotate(server.kubeconfig(), &client, names.len(), &section).await.0);
                }
                Round::Bare => bare.push(bare_patches(server.kubeconfig(), &client, &annotations).await),
            }
            if annotations.is_empty() {
                let state = cluster::versions(&client).await.into_iter();
                annotations =
                    state.filter_map(|(name, (_, _, annotation))| Some((name, annotation?))).collect();
                assert_eq!(annotations.len(), names.len(), "each pod has its VIF");
            }
            cluster::reset(&client, &names).await;
        }
        rounds.reverse();
    }
    let pairs = |runs: &[Run], baseline: &[Run], figure: fn(&Run) -> f64| {
        median(runs.iter().zip(baseline).map(|(run, other)| figure(run) / figure(other)).collect())
    };
    let ratio = pairs(&ours, &bare, |run| run.writes_a_second);
    let traced_ratio = pairs(&traced, &ours, |run| run.writes_a_second);
    let traced_cpu_ratio = pairs(&traced, &ours, |run| run.cpu_ms_a_pod);
    let writes = |runs: &[Run]| median(runs.iter().map(|run| run.writes_a_second).collect());
    let cpu = |runs: &[Run]| median(runs.iter().map(|run| run.cpu_ms_a_pod).collect());
    let runs = ours.len() as f64;
    let writes_a_pod = all.writes / (runs * names.len() as f64);
    vec![
        Row::new("VIFs written down", "1/s", writes(&ours))
            .against(writes(&bare))
            .goal(format!("at least 0.9 of bare PATCHes, {IN_FLIGHT} in flight"), ratio >= 0.9),
        Row::new("the same, median of the pairs", "ratio", ratio),
        Row::new("own CPU per pod written", "ms", cpu(&ours))
            .against(cpu(&bare))
            .goal(format!("at most {CPU_MS_A_POD}"), cpu(&ours) <= CPU_MS_A_POD),
        Row::new("VIFs written down, with traces", "1/s", writes(&traced))
            .against(writes(&ours))
            .goal("at least 0.95 of without", traced_ratio >= 0.95),
        Row::new("the same, median of the pairs", "ratio", traced_ratio),
        Row::new("own CPU per pod written, with traces", "ms", cpu(&traced))
            .against(cpu(&ours))
            .goal("at most 1.05 of without", traced_cpu_ratio <= 1.05),
        Row::new("the same, median of the pairs", "ratio", traced_cpu_ratio),
        Row::new("spans a pod, with traces", "1", collector.spans() as f64 / (runs * names.len() as f64)),
        Row::new("writes a pod, all runs", "1", writes_a_pod).goal("at most 1", writes_a_pod <= 1.0),
        Row::new("pages of the list of pods, a run", "1", all.lists / runs),
        Row::new("other reads, and Events, all runs", "1", all.others).goal("0", all.others == 0.0),
    ]
}

/// Starts a controller and waits until each pod has its VIF, and its watch has delivered each of these changes. As that watch
/// begins when its list is almost complete, a process that does nothing else reads one meanwhile.
async fn annotate(kubeconfig: &Path, client: &Client, pods: usize, further: &str) -> (Run, Requests) {
    let (watcher, before) = watcher(kubeconfig, client).await;
    let controller = Controller::start(kubeconfig, 0, further).await;
    let from = controller.until(|progress| progress.patches, warm_up(pods)).await;
    let to = controller.until(|progress| progress.patches, pods).await;
    let writes_a_second = (to.patches - from.patches) / (to.at - from.at).as_secs_f64();
    drop(watcher);
    controller.until(|progress| progress.changes, pods).await;
    let cpu_ms_a_pod = milliseconds(controller.program.usage().cpu) / pods as f64;
    controller.program.stop().await;
    let requests = requests::answered(client).await - before;
    (Run { writes_a_second, cpu_ms_a_pod }, requests)
}

/// An OpenTelemetry collector that counts the spans that it receives.
struct Collector {
    url: String,
    spans: Arc<AtomicUsize>,
}

impl Collector {
    async fn start() -> Self {
        let spans = Arc::<AtomicUsize>::default();
        let received = Arc::clone(&spans);
        let traces = post(async move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).expect("it is OTLP");
            let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
            received.fetch_add(scopes.map(|scope| scope.spans.len()).sum(), Ordering::Relaxed);
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let router = Router::new().route("/v1/traces", traces);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, spans }
    }

    /// The configuration of a controller that sends its traces here, by default those of the share of the events that it traces by default.
    fn section(&self) -> String {
        let ratio = std::env::var("STAFFETTA_BENCH_SAMPLE_RATIO");
        let ratio = ratio.map(|ratio| format!("sample_ratio = {ratio}\n")).unwrap_or_default();
        format!("[traces]\notlp_endpoint = \"{}\"\n{ratio}", self.url)
    }

    fn spans(&self) -> usize {
        self.spans.load(Ordering::Relaxed)
    }
}

/// The number of writes after which the clock starts, on both sides, so that start-up and the first list are left out.
fn warm_up(pods: usize) -> usize {
    pods / 100
}

/// A process that reads a watch of the pods, and the number of requests that the server has answered when that begins.
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
async fn bare_patches(kubeconfig: &Path, client: &Client, annotations: &BTreeMap<String, String>) -> Run {
    let versions = cluster::versions(client).await;
    let mut bare = Bare::start(kubeconfig, true);
    for (name, annotation) in annotations {
        let (uid, version, _) = &versions[name];
        bare.patch(name, &cluster::claim(uid, version, annotation)).await;
    }
    let pods = annotations.len();
    let patched = bare.patched(pods).await;
    let cpu_ms_a_pod = milliseconds(bare.usage().cpu) / pods as f64;
    let [first, .., last] = &patched[warm_up(pods)..] else { panic!("there are several") };
    let writes_a_second = (pods - warm_up(pods) - 1) as f64 / (last.at - first.at).as_secs_f64();
    Run { writes_a_second, cpu_ms_a_pod }
}

/// Counts the requests of a pod's life at the server.
async fn requests_of_a_life() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY).expect("the folder can be written");
    let flags =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let server = RealServer::start(&flags.each_ref().map(String::as_str)).await;
    let client = cluster::client(server.kubeconfig()).await;
    let mut rows = Vec::new();
    for (words, delay, most) in [("active at once", 0, 1.0), ("active after 300 ms", 300, 2.0)] {
        let names = names(&format!("life-{delay}"), 300);
        let before = requests::logged(&log);
        let controller = Controller::start(server.kubeconfig(), delay, "").await;
        cluster::create(&client, &names).await;
        cluster::until_wired(&client, names.len(), true).await;
        let made = requests::logged(&log);
        cluster::end(&client, &names).await;
        let ended = requests::logged(&log);
        controller.program.stop().await;
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

/// Each request for a resource, once it is answered.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{ level: Metadata }]
";

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}
