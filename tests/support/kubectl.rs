//! Runs kubectl as a user does.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A kubectl that is bound to one cluster and namespace.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: tempfile::TempDir,
    namespace: String,
}

impl Kubectl {
    /// Bound to no namespace where `namespace` is empty. None, and it is said why, where there is no kubectl.
    pub(crate) fn find(kubeconfig: &Path, namespace: &str) -> Self {
        let program = staffetta_apiserver::testing::program("kubectl");
        let cache = tempfile::tempdir().unwrap();
        Self { program, kubeconfig: kubeconfig.into(), cache, namespace: namespace.into() }
    }

    /// Runs it to its good end, and answers what it printed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        self.feed(arguments, "").await
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&self, manifest: &str) {
        self.feed(&["apply", "-f", "-"], manifest).await;
    }

    /// Runs it, and returns what it printed, or its error output if it failed.
    pub(crate) async fn attempt(&self, arguments: &[&str]) -> Result<String, String> {
        let (good, printed, said) = self.ends(arguments, "").await;
        if good { Ok(printed) } else { Err(said) }
    }

    /// Ends when an object exists, for which kubectl 1.30 cannot wait.
    pub(crate) async fn exists(&self, object: &str) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.attempt(&["get", object]).await {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs it to its bad end, and answers what it said.
    pub(crate) async fn fails(&self, arguments: &[&str]) -> String {
        let (good, printed, said) = self.ends(arguments, "").await;
        assert!(!good, "kubectl {}: {printed}\n{said}", arguments.join(" "));
        said
    }

    /// Runs it to its good end with something to read.
    pub(crate) async fn feed(&self, arguments: &[&str], input: &str) -> String {
        let (good, printed, said) = self.ends(arguments, input).await;
        assert!(good, "kubectl {}: {printed}\n{said}", arguments.join(" "));
        printed
    }

    /// Runs it and returns its success, output and error output.
    async fn ends(&self, arguments: &[&str], input: &str) -> (bool, String, String) {
        let bound = ["--namespace", self.namespace.as_str()];
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.cache.path())
            .args(bound.iter().filter(|_| !self.namespace.is_empty()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let [printed, said] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.success(), printed, said)
    }
}
