//! A controller of which the writes are counted.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::cluster::IN_FLIGHT;
use crate::program::Program;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(300);
/// The least time between two looks at the counters. They cost the controller CPU time too, so far from the end there are fewer.
const LOOK: Duration = Duration::from_millis(250);

/// A running program that says how many writes were acknowledged.
pub(crate) struct Controller {
    program: Program,
    admin: String,
    metrics: reqwest::Client,
}

/// How far it is.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) at: Instant,
    /// How many patches were acknowledged.
    pub(crate) patches: f64,
    /// How many changes of pods its watch has told.
    heard: f64,
}

impl Controller {
    /// Starts one and waits until its admin server listens.
    pub(crate) async fn start(kubeconfig: &Path, options: &str) -> Self {
        let sections = format!("[relay]\nmax_concurrency = {IN_FLIGHT}\n{options}");
        let mut program = Program::start(kubeconfig, &sections);
        let line = program.says("the admin server listens").await;
        let admin = line["admin"].as_str().expect("the line says where").to_owned();
        // The client wants one, although it speaks no TLS here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { program, admin, metrics: reqwest::Client::new() }
    }

    /// Waits until that many patches were acknowledged.
    pub(crate) async fn until_patched(&self, count: usize) -> Progress {
        let first = self.progress().await;
        let mut progress = first;
        while progress.patches < count as f64 {
            let gone = progress.at - first.at;
            assert!(gone < PATIENCE, "{} of {count} PATCHes in {PATIENCE:?}", progress.patches);
            // Half of the time that the rest takes at the rate so far.
            let rate = (progress.patches - first.patches).max(1.0) / gone.as_secs_f64().max(1.0);
            let half = (count as f64 - progress.patches) / rate / 2.0;
            tokio::time::sleep(Duration::from_secs_f64(half.clamp(LOOK.as_secs_f64(), 2.0))).await;
            progress = self.progress().await;
        }
        progress
    }

    /// Waits until its watch has told so many changes of pods.
    pub(crate) async fn until_heard(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Progress { at, heard, .. } = self.progress().await;
            if heard >= count as f64 {
                return;
            }
            assert!(at < deadline, "{heard} of {count} changes were heard of in {PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn progress(&self) -> Progress {
        let asked = self.metrics.get(format!("http://{}/metrics", self.admin)).send().await;
        let text = asked.expect("the controller answers").text().await.expect("metrics are text");
        let sum = |name: &str, labels: [&str; 2]| -> f64 {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Progress {
            at: Instant::now(),
            patches: sum("rest_client_requests_total{", [r#"method="PATCH""#, r#"code="200""#]),
            heard: sum("staffetta_events_received_total{", [r#"kind="Pod""#, r#"change="modified""#]),
        }
    }

    /// The CPU time that its process has used.
    pub(crate) fn cpu(&self) -> Duration {
        let id = i32::try_from(self.process()).expect("a process id fits");
        let stat = procfs::process::Process::new(id).and_then(|process| process.stat()).expect("it runs");
        Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) {
        let process = self.process().to_string();
        Command::new("kill").args(["-TERM", &process]).status().await.expect("it can be told to stop");
        self.program.child.wait().await.expect("it ends");
    }

    fn process(&self) -> u32 {
        self.program.child.id().expect("it runs")
    }
}
