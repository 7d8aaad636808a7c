//! A real control plane for one test, which the test may stop, start again, and restore to an earlier state.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../real/kubernetes");
/// Names the folder in which the script keeps the state of what runs.
const STATE: &str = "STAFFETTA_REAL_STATE";

/// One takes 400 MB: the tests of a process take turns.
static EXCLUSIVE: Semaphore = Semaphore::const_new(1);

/// An etcd and a kube-apiserver on loopback, stored under `devstack/real/kubernetes`. They end when this value is dropped.
///
/// Unless it is started by [`start_whole`](Self::start_whole), there are no other controllers, and namespaces have no service
/// accounts. A process runs only one at the same time: a test that starts a second one while it holds the first waits for ever.
///
/// # Panics
/// All methods panic if the script fails, with its output.
pub struct RealServer {
    state: TempDir,
    whole: bool,
    flags: Vec<String>,
    kubeconfig: PathBuf,
    snapshots: std::sync::atomic::AtomicUsize,
    _exclusive: SemaphorePermit<'static>,
}

/// A copy of etcd's data. It is deleted with its [`RealServer`].
pub struct Snapshot(PathBuf);

impl RealServer {
    /// Starts a control plane, after any other one in this process has ended. Builds missing programs first. `flags` are passed
    /// to kube-apiserver: `--watch-cache=false` ...
    pub async fn start(flags: &[&str]) -> Self {
        Self::make(flags, false).await.begin().await
    }

    /// Starts a control plane with the kube-controller-manager and the scheduler.
    pub async fn start_whole(flags: &[&str]) -> Self {
        Self::make(flags, true).await.begin().await
    }

    async fn begin(mut self) -> Self {
        self.kubeconfig = self.up().await;
        self
    }

    async fn make(flags: &[&str], whole: bool) -> Self {
        let exclusive = EXCLUSIVE.acquire().await.expect("it is never closed");
        let parent = std::env::var_os(STATE).map_or_else(std::env::temp_dir, PathBuf::from);
        let state = tempfile::Builder::new().prefix("private.").tempdir_in(&parent).unwrap_or_else(|error| {
            panic!("no folder can be made in {}: {error}", parent.display());
        });
        Self {
            state,
            whole,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            kubeconfig: PathBuf::new(),
            snapshots: 0.into(),
            _exclusive: exclusive,
        }
    }

    /// Returns the path of the administrator's kubeconfig. Neither the path nor the address in it ever changes.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Stops the kube-apiserver; its stored objects are kept.
    pub async fn stop_apiserver(&self) {
        self.run(&["down", "apiserver"]).await;
    }

    /// Stops etcd while the kube-apiserver runs.
    pub async fn stop_etcd(&self) {
        self.run(&["down", "etcd"]).await;
    }

    /// Starts the stopped programs again, with their data and ports, and waits until they respond.
    pub async fn resume(&self) {
        self.up().await;
    }

    /// Copies the contents of etcd. Both programs are stopped for this, and run again when it returns.
    pub async fn snapshot(&self) -> Snapshot {
        let number = self.snapshots.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = self.state.path().join(format!("snapshot-{number}"));
        self.run(&["down"]).await;
        self.run(&[OsStr::new("save"), folder.as_os_str()]).await;
        self.resume().await;
        Snapshot(folder)
    }

    /// Restores the contents of etcd: later objects are lost, and their revisions are used again. Both programs are stopped for
    /// this, and run again when it returns.
    pub async fn restore(&self, snapshot: &Snapshot) {
        self.run(&["down"]).await;
        self.run(&[OsStr::new("restore"), snapshot.0.as_os_str()]).await;
        self.resume().await;
    }

    /// Compacts etcd up to its current revision. A kube-apiserver with a watch cache keeps the history in memory until it is
    /// started again; one with `--watch-cache=false` does not.
    pub async fn compact(&self) {
        self.run(&["compact"]).await;
    }

    async fn up(&self) -> PathBuf {
        let parts: &[&str] = if self.whole { &[] } else { &["--only-apiserver"] };
        let flags = self.flags.iter().map(String::as_str);
        let arguments: Vec<_> = ["up"].iter().chain(parts).chain(&["--"]).copied().chain(flags).collect();
        let said = self.run(&arguments).await;
        PathBuf::from(said.lines().last().unwrap_or_default())
    }

    async fn run(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        let command = self.command(arguments);
        let words = format!("{command:?}");
        let mut command = tokio::process::Command::from(command);
        let Output { status, stdout, stderr } =
            command.kill_on_drop(true).output().await.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(status.success(), "{words}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new("bash");
        command.arg(SCRIPT).args(arguments).env(STATE, self.state.path()).stdin(Stdio::null());
        command
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        // A test that has failed already is not to fail for this too, and who runs the tests sees what the script says.
        let _ = self.command(&["down", "--wipe"]).status();
    }
}
