//! A real broker, started by `devstack/real/mosquitto`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of the script in the repository.
const SCRIPT: &str = "devstack/real/mosquitto";

/// Names the folder in which the script keeps the state of what runs.
const STATE: &str = "STAFFETTA_REAL_STATE";

/// A broker on loopback.
pub(crate) struct Broker {
    folder: PathBuf,
    /// The folder of a broker that belongs to one test.
    private: Option<tempfile::TempDir>,
    /// Further lines of its configuration.
    lines: &'static [&'static str],
}

impl Broker {
    /// Returns the broker that all tests share.
    pub(crate) fn shared() -> Self {
        let folder = std::env::var_os("STAFFETTA_REAL_MOSQUITTO");
        let folder = folder.expect("STAFFETTA_REAL_MOSQUITTO: run this test by devstack/real/test");
        Self { folder: folder.into(), private: None, lines: &[] }
    }

    /// Starts a broker that this test may stop. It ends when it is dropped.
    pub(crate) fn private() -> Self {
        Self::configured(&[])
    }

    /// Starts a broker of this test with these lines in its configuration.
    pub(crate) fn configured(lines: &'static [&'static str]) -> Self {
        let parent = std::env::var_os(STATE).map_or_else(std::env::temp_dir, PathBuf::from);
        let state = tempfile::Builder::new().prefix("private.").tempdir_in(parent).unwrap();
        let folder = state.path().join("mosquitto");
        let broker = Self { folder, private: Some(state), lines };
        broker.start();
        broker
    }

    pub(crate) fn start(&self) {
        self.run(&[&["up"], self.lines].concat());
    }

    pub(crate) fn stop(&self) {
        self.run(&["down"]);
    }

    /// Sends a signal to the process: `STOP` makes it hang until `CONT`.
    pub(crate) fn kill(&self, name: &str) {
        let process = std::fs::read_to_string(self.folder.join("run/broker.pid")).unwrap();
        let sent = Command::new("kill").args([&format!("-{name}"), process.trim()]).status().unwrap();
        assert!(sent.success());
    }

    fn run(&self, arguments: &[&str]) {
        let state = self.private.as_ref().expect("only a private broker is stopped").path();
        let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join(SCRIPT));
        let script = above.find(|script| script.exists()).expect("the crate is in the repository");
        let output = Command::new(script).args(arguments).env(STATE, state).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the port with TLS (`true`) or without.
    pub(crate) fn port(&self, tls: bool) -> u16 {
        let ports = std::fs::read_to_string(self.folder.join("ports")).unwrap();
        let name = if tls { "TLS_PORT=" } else { "PORT=" };
        ports.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
    }

    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        Path::new(&self.folder).join("pki").join(file)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.private.is_some() {
            self.run(&["down", "--wipe"]);
        }
    }
}
