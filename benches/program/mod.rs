//! The program as it ships, in a process of its own.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running process of the program with nothing but the handler `vif`, and its log.
pub(crate) struct Program {
    pub(crate) child: Child,
    log: mpsc::UnboundedReceiver<String>,
    _folder: TempDir,
}

impl Program {
    /// Starts one with these further sections of the configuration.
    pub(crate) fn start(kubeconfig: &Path, sections: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("staffetta.toml");
        let text = format!(
            "[kubernetes]\nenabled_handlers = [\"vif\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             {sections}"
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
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (sender, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // Nobody listens any more when the process is forgotten.
                let _ = sender.send(line);
            }
        });
        Self { child, log, _folder: folder }
    }

    /// Waits for a line of the log with this text.
    pub(crate) async fn says(&mut self, text: &str) -> serde_json::Value {
        let said = async {
            while let Some(line) = self.log.recv().await {
                if line.contains(text) {
                    return serde_json::from_str(&line).expect("the log is JSON");
                }
            }
            panic!("the process ended before it said `{text}`");
        };
        tokio::time::timeout(PATIENCE, said).await.unwrap_or_else(|_| panic!("it does not say `{text}`"))
    }
}
