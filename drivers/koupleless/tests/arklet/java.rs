//! A Java process with Arklet.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running base. It ends when it is dropped.
pub(crate) struct JavaBase {
    /// The folder that `devstack/real/arklet` built.
    built: PathBuf,
    /// The port at which it serves commands.
    pub(crate) port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

impl JavaBase {
    /// Starts a base. It serves commands some seconds later.
    pub(crate) fn start() -> Self {
        let built = std::env::var_os("STAFFETTA_REAL_ARKLET");
        let built = PathBuf::from(built.expect("STAFFETTA_REAL_ARKLET: run this test by devstack/real/test"));
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
        Self { built, port, process, _folder: folder }
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
