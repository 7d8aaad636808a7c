//! Processes that a benchmark starts: the program as it ships, and the benchmark itself in another role.

#![allow(dead_code, reason = "each benchmark takes what it needs")]
#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use procfs::process::Process;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::wait::PATIENCE;

/// The variable with the role of a process that a benchmark started.
const ROLE: &str = "STAFFETTA_BENCH_ROLE";

/// The role of this process, if a benchmark started it by [`again`].
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A command that starts this benchmark again, in another role. The process is killed when its handle is dropped.
pub(crate) fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.env(ROLE, role).kill_on_drop(true);
    command
}

/// The section `[kubernetes]` of a controller with nothing but the handler `vif`. `drivers` is the name of the drivers of
/// projects, subnets and security groups.
pub(crate) fn vif(drivers: &str, pod_vif: &str, pool: &str) -> String {
    format!(
        "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_project_driver = {drivers:?}\n\
         pod_subnets_driver = {drivers:?}\npod_security_groups_driver = {drivers:?}\n\
         pod_vif_driver = {pod_vif:?}\nvif_pool_driver = {pool:?}\n"
    )
}

/// A controller with nothing but the handler `vif` on a simulated network of its own, where a VIF is active after so many
/// milliseconds.
pub(crate) fn vif_in_memory(activation_delay_ms: u32) -> String {
    vif("memory", "memory", "noop") + &format!("[memory]\nactivation_delay_ms = {activation_delay_ms}\n")
}

/// A running controller and its log. It is killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    log: mpsc::UnboundedReceiver<String>,
    _folder: TempDir,
}

impl Program {
    /// Starts the program as it ships with these sections of the configuration.
    pub(crate) fn start(kubeconfig: &Path, sections: &str) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_staffetta")), kubeconfig, sections)
    }

    /// Starts the daemon of the CNI plugin with these sections of the configuration.
    pub(crate) fn start_cni_daemon(kubeconfig: &Path, sections: &str) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_staffetta")), "cni-daemon", kubeconfig, sections)
    }

    /// The same by another command, which runs a controller as the program does.
    pub(crate) fn run(command: Command, kubeconfig: &Path, sections: &str) -> Self {
        Self::spawn(command, "run", kubeconfig, sections)
    }

    fn spawn(mut command: Command, verb: &str, kubeconfig: &Path, sections: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("staffetta.toml");
        let text = format!("{sections}\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n");
        std::fs::write(&file, text).expect("the folder can be written");
        let mut child = command
            .args([verb, "--config"])
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
                // The receiver is gone when the benchmark is done with the process.
                let _ = sender.send(line);
            }
        });
        Self { child, log, _folder: folder }
    }

    /// Waits for a line of the log with this text.
    pub(crate) async fn logs(&mut self, text: &str) -> serde_json::Value {
        let line = async {
            while let Some(line) = self.log.recv().await {
                if line.contains(text) {
                    return serde_json::from_str(&line).expect("the log is JSON");
                }
            }
            panic!("the process ended before it logged `{text}`");
        };
        tokio::time::timeout(PATIENCE, line).await.unwrap_or_else(|_| panic!("it does not log `{text}`"))
    }

    /// The usage of CPU and memory so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(&self.child)
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().expect("it runs").to_string();
        Command::new("kill").args(["-TERM", &id]).status().await.expect("`kill` can be started");
        self.child.wait().await.expect("it ends");
    }
}

/// The usage of CPU and memory of a process, by /proc.
pub(crate) struct Usage {
    /// The CPU time since the start.
    pub(crate) cpu: Duration,
    /// The resident memory in MiB, and the largest so far.
    pub(crate) resident: f64,
    pub(crate) peak: f64,
}

impl Usage {
    /// The resources of a running process.
    pub(crate) fn of(child: &Child) -> Self {
        let id = i32::try_from(child.id().expect("it runs")).expect("a process id fits");
        let process = Process::new(id).expect("it runs");
        let (stat, status) = process.stat().and_then(|stat| Ok((stat, process.status()?))).expect("it runs");
        let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        let mebibytes = |kibibytes: Option<u64>| kibibytes.unwrap_or_default() as f64 / 1024.0;
        let (resident, peak) = (mebibytes(status.vmrss), mebibytes(status.vmhwm));
        Self { cpu: Duration::from_secs_f64(ticks), resident, peak }
    }
}
