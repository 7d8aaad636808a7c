//! A Java process with Arklet.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time within which a base must serve commands, on a busy machine too.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running base. It ends when it is dropped.
pub(crate) struct JavaBase {
    /// The folder that `devstack/real/arklet` built.
    built: PathBuf,
    /// The port at which it serves commands.
    pub(crate) port: u16,
    process: Child,
    folder: tempfile::TempDir,
}

impl JavaBase {
    /// Starts a base, and waits until it serves commands, which takes some seconds.
    pub(crate) async fn start() -> Self {
        let built = std::env::var_os("STAFFETTA_REAL_ARKLET");
        let built = PathBuf::from(built.expect("STAFFETTA_REAL_ARKLET: run this test by devstack/real/test"));
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new("java")
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1"])
            .arg(format!("-Duser.home={}", folder.path().display()))
            .arg(format!("-Dkoupleless.arklet.http.port={port}"))
            .arg("-jar")
            .arg(built.join("base.jar"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("java can be started");
        let mut base = Self { built, port, process, folder };
        base.serves().await;
        base
    }

    /// Waits until the base serves commands.
    async fn serves(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the base does not serve at {} ({ended:?}); its log: {}",
                self.port,
                std::fs::read_to_string(self.folder.path().join("log")).unwrap()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the URL of the module `cart` of the version 1.0.0.
    pub(crate) fn module(&self) -> String {
        self.jar("module.jar")
    }

    /// Returns the URL of the module `cart` of the version 2.0.0.
    pub(crate) fn second_version(&self) -> String {
        self.jar("module-2.jar")
    }

    fn jar(&self, name: &str) -> String {
        format!("file://{}", self.built.join(name).display())
    }
}

impl Drop for JavaBase {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a port that nobody listens at. It is below those that the kernel gives to clients, so that no connection has it before the
/// base does.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id().wrapping_mul(16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + offset % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
