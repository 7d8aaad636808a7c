//! The program as it ships, in a process of its own.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cluster::IN_FLIGHT;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running controller with nothing but the handler `vif`.
pub(crate) struct Controller {
    child: Child,
    admin: String,
    metrics: reqwest::Client,
    _folder: TempDir,
}

/// How far it is.
pub(crate) struct Progress {
    pub(crate) at: Instant,
    /// How many patches were acknowledged.
    pub(crate) patches: f64,
}

impl Controller {
    /// Starts one and waits until its admin server listens.
    pub(crate) async fn start(kubeconfig: &Path, options: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("staffetta.toml");
        let text = format!(
            "[kubernetes]\nenabled_handlers = [\"vif\"]\n[relay]\nmax_concurrency = {IN_FLIGHT}\n[leader_election]\nenabled = false\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n{options}"
        );
        std::fs::write(&file, text).expect("the folder can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_staffetta"))
            .args(["run", "--config"])
            .arg(&file)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program was built for this benchmark");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let admin = loop {
            let line = log
                .next_line()
                .await
                .expect("the log is text")
                .expect("the controller says where it listens");
            let line: serde_json::Value = serde_json::from_str(&line).expect("the log is JSON");
            if let Some(admin) = line["admin"].as_str() {
                break admin.to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        // The client wants one, although it speaks no TLS here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { child, admin, metrics: reqwest::Client::new(), _folder: folder }
    }

    /// Waits until that many patches were acknowledged.
    pub(crate) async fn until_patched(&self, count: usize) -> Progress {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let progress = self.progress().await;
            if progress.patches >= count as f64 {
                return progress;
            }
            assert!(progress.at < deadline, "{} of {count} PATCHes in {PATIENCE:?}", progress.patches);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn progress(&self) -> Progress {
        let asked = self.metrics.get(format!("http://{}/metrics", self.admin)).send().await;
        let text = asked.expect("the controller answers").text().await.expect("metrics are text");
        let of_patches = |line: &&str| {
            line.starts_with("rest_client_requests_total{")
                && line.contains(r#"method="PATCH""#)
                && line.contains(r#"code="200""#)
        };
        let patches =
            text.lines().filter(of_patches).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Progress { at: Instant::now(), patches: patches.sum() }
    }

    /// The CPU time that its process has used.
    pub(crate) fn cpu(&self) -> Duration {
        let id = self.child.id().expect("it runs");
        let process =
            procfs::process::Process::new(i32::try_from(id).expect("a process id fits")).expect("it runs");
        let stat = process.stat().expect("/proc can be read");
        Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().expect("it runs").to_string();
        Command::new("kill").args(["-TERM", &id]).status().await.expect("it can be told to stop");
        self.child.wait().await.expect("it ends");
    }
}
