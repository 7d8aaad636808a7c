//! A controller whose writes are counted by its own metrics.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::IN_FLIGHT;
use crate::program::{Program, vif_in_memory};
use crate::wait::PATIENCE;

/// The least time between two reads of the metrics. They cost the controller CPU time too, so there are fewer while the goal is
/// far.
const MIN_PAUSE: Duration = Duration::from_millis(250);

/// A running controller whose metrics are read.
pub(crate) struct Controller {
    pub(crate) program: Program,
    admin: String,
    metrics: reqwest::Client,
}

/// The progress of the controller.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) at: Instant,
    /// The number of acknowledged patches.
    pub(crate) patches: f64,
    /// The number of changes of pods that its watch delivered.
    pub(crate) changes: f64,
}

impl Controller {
    /// Starts one whose VIFs are active after a delay, with further sections of the configuration, and waits until its admin server
    /// listens.
    pub(crate) async fn start(kubeconfig: &Path, activation_delay_ms: u32, further: &str) -> Self {
        // One namespace has half of it.
        let relay = format!("[relay]\nmax_concurrency = {}\n", 2 * IN_FLIGHT);
        let sections = vif_in_memory(activation_delay_ms) + &relay + further;
        let mut program = Program::start(kubeconfig, &sections);
        let line = program.logs("the admin server is listening").await;
        let admin = line["admin"].as_str().expect("the line has the address").to_owned();
        Self { program, admin, metrics: reqwest::Client::new() }
    }

    /// Waits until `figure` has reached `goal`.
    pub(crate) async fn until(&self, figure: impl Fn(&Progress) -> f64, goal: usize) -> Progress {
        let first = self.progress().await;
        let mut progress = first;
        while figure(&progress) < goal as f64 {
            let gone = progress.at - first.at;
            assert!(gone < PATIENCE, "{} of {goal} in {PATIENCE:?}", figure(&progress));
            // Half of the time that the rest takes at the rate so far.
            let rate = (figure(&progress) - figure(&first)).max(1.0) / gone.as_secs_f64().max(1.0);
            let half = (goal as f64 - figure(&progress)) / rate / 2.0;
            tokio::time::sleep(Duration::from_secs_f64(half.clamp(MIN_PAUSE.as_secs_f64(), 2.0))).await;
            progress = self.progress().await;
        }
        progress
    }

    async fn progress(&self) -> Progress {
        let answer = self.metrics.get(format!("http://{}/metrics", self.admin)).send().await;
        let text = answer.expect("the controller answers").text().await.expect("metrics are text");
        let sum = |name: &str, labels: [&str; 2]| -> f64 {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Progress {
            at: Instant::now(),
            patches: sum("rest_client_requests_total{", [r#"method="PATCH""#, r#"code="200""#]),
            changes: sum("staffetta_events_received_total{", [r#"kind="Pod""#, r#"change="modified""#]),
        }
    }
}
