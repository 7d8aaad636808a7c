//! A controller in a separate process.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;

/// The time limit of a step of a real process. It does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running controller. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    log: Log,
    admin: String,
    /// The address of its probes server, if it has one.
    probes: Option<String>,
}

/// A configuration with simulated drivers.
pub(crate) const SIMULATED: &str = include_str!("../../etc/simulated.toml");

/// The configuration, with simulated drivers unless it names drivers.
fn simulated(configuration: &str) -> String {
    const SECTION: &str = "[kubernetes]";
    if configuration.contains("_driver = ") {
        configuration.to_owned()
    } else if configuration.contains(SECTION) {
        configuration.replacen(SECTION, SIMULATED, 1)
    } else {
        format!("{configuration}\n{SIMULATED}")
    }
}

/// Creates the lease as a leader leaves it that has ended, so that the first process leads at once.
pub(crate) async fn leave_lease(client: kube::Client) {
    let spec = serde_json::json!({ "holderIdentity": "", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1 });
    let lease = serde_json::json!({ "metadata": { "name": "staffetta" }, "spec": spec });
    let lease = serde_json::from_value::<k8s_openapi::api::coordination::v1::Lease>(lease).unwrap();
    let leases = kube::Api::default_namespaced(client);
    leases.create(&kube::api::PostParams::default(), &lease).await.unwrap();
}

/// The lines of a log that were not read yet.
type Log = mpsc::UnboundedReceiver<String>;

/// Reads all the time: a program whose log nobody reads waits for that in the end. The output of a test that fails has the lines.
#[allow(clippy::print_stdout, reason = "it is shown if the test fails")]
fn log(stderr: ChildStderr) -> Log {
    let (sender, log) = mpsc::unbounded_channel();
    let mut lines = BufReader::new(stderr).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{line}");
            // Nobody reads on when the process was dropped, or was hung up on.
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    log
}

impl Process {
    /// Starts `program run` with this configuration and kubeconfig; ends when its admin server listens.
    pub(crate) async fn start(program: &Path, folder: &Path, configuration: &str, kubeconfig: &str) -> Self {
        Self::start_in(&[], program, folder, configuration, kubeconfig).await
    }

    /// The same, with these variables in its environment.
    pub(crate) async fn start_in(
        environment: &[(&str, &Path)],
        program: &Path,
        folder: &Path,
        configuration: &str,
        kubeconfig: &str,
    ) -> Self {
        let mut command = run(program, folder, kubeconfig);
        command.envs(environment.iter().copied());
        Self::spawn(command, folder, &simulated(configuration)).await
    }

    /// Starts `program run` with this configuration as it is, without simulated drivers.
    pub(crate) async fn start_as_it_is(
        program: &Path,
        folder: &Path,
        configuration: &str,
        kubeconfig: &str,
    ) -> Self {
        Self::spawn(run(program, folder, kubeconfig), folder, configuration).await
    }

    /// Starts `program run` as in a pod: it has to find its way to the API server, whose address this is, by itself.
    pub(crate) async fn start_in_pod(
        program: &Path,
        folder: &Path,
        configuration: &str,
        (host, port): (&str, u16),
    ) -> Self {
        let mut command = Command::new(program);
        command.arg("run").env_clear().envs(std::env::var("PATH").map(|path| ("PATH", path)));
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port.to_string());
        Self::spawn(command, folder, &simulated(configuration)).await
    }

    /// Starts `program cni-daemon`.
    pub(crate) async fn start_cni_daemon(
        program: &Path,
        folder: &Path,
        configuration: &str,
        kubeconfig: &Path,
    ) -> Self {
        Self::start_cni_daemon_in(&[], program, folder, configuration, kubeconfig).await
    }

    /// The same, with these variables in its environment.
    pub(crate) async fn start_cni_daemon_in(
        environment: &[(&str, &Path)],
        program: &Path,
        folder: &Path,
        configuration: &str,
        kubeconfig: &Path,
    ) -> Self {
        let mut command = Command::new(program);
        command.arg("cni-daemon").arg("--kubeconfig").arg(kubeconfig).envs(environment.iter().copied());
        Self::spawn(command, folder, &simulated(configuration)).await
    }

    async fn spawn(mut command: Command, folder: &Path, configuration: &str) -> Self {
        let config = folder.join("staffetta.toml");
        std::fs::write(&config, configuration).unwrap();
        if configuration.contains("probes_listen") {
            command.env("STAFFETTA_ADMIN__PROBES_LISTEN", "127.0.0.1:0"); // several run at a time
        }
        let mut child = command
            .arg("--config")
            .arg(&config)
            .env("STAFFETTA_ADMIN__LISTEN", "127.0.0.1:0")
            .env("STAFFETTA_LOG__FORMAT", "json")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = log(child.stderr.take().unwrap());
        let (admin, probes) = loop {
            let line = next_line(&mut log).await.expect("the controller says where its admin server listens");
            let line: serde_json::Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            if let Some(admin) = line["admin"].as_str() {
                break (admin.to_owned(), line["probes"].as_str().map(str::to_owned));
            }
        };
        Self { child, log, admin, probes }
    }

    /// The address of the admin server.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// The answer of the admin server: its status code and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        ask(&self.admin, "GET", path).await
    }

    /// The answer of the admin server to a `POST`.
    pub(crate) async fn post(&self, path: &str) -> (u16, String) {
        ask(&self.admin, "POST", path).await
    }

    /// The answer of the probes server.
    pub(crate) async fn probe(&self, path: &str) -> (u16, String) {
        ask(self.probes.as_ref().expect("it has a probes server"), "GET", path).await
    }

    /// Ends when the controller is ready.
    pub(crate) async fn ready(&self) {
        eventually("the controller is ready", async || self.get("/readyz").await.0 == 200).await;
    }

    /// The lines of the log that were not read yet, up to the next one that contains `text`.
    pub(crate) async fn says(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let deadline = tokio::time::Instant::now() + 5 * PATIENCE; // it may say much else meanwhile
        while lines.last().is_none_or(|line: &String| !line.contains(text)) {
            assert!(tokio::time::Instant::now() < deadline, "it does not say `{text}`: {lines:#?}");
            let line = next_line(&mut self.log).await;
            lines.push(line.unwrap_or_else(|| panic!("the log ended without `{text}`: {lines:#?}")));
        }
        lines
    }

    /// Nobody listens to what it says any more: after one more line its log is a pipe without an end.
    pub(crate) fn hang_up(&mut self) {
        self.log.close();
    }

    /// Sends a signal: `TERM`, `KILL`, `STOP`, `CONT` ...
    pub(crate) async fn kill(&self, name: &str) {
        let id = self.child.id().expect("it still runs").to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits for the end.
    pub(crate) async fn ends(&mut self) -> ExitStatus {
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            let lines: Vec<_> = std::iter::from_fn(|| self.log.try_recv().ok()).collect();
            panic!("it does not end in time; it said last: {:#?}", &lines[lines.len().saturating_sub(20)..]);
        };
        status.unwrap()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.kill("TERM").await;
        self.ends().await
    }
}

/// The command `program run` with this kubeconfig, which is written to the folder.
fn run(program: &Path, folder: &Path, kubeconfig: &str) -> Command {
    let path = folder.join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let mut command = Command::new(program);
    command.arg("run").arg("--kubeconfig").arg(&path);
    command
}

async fn next_line(log: &mut Log) -> Option<String> {
    tokio::time::timeout(PATIENCE, log.recv()).await.expect("a line comes in time")
}

/// Asks again until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ask(address: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
