//! kubectl, as its user calls it, and what it talks to.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use kube::config::Kubeconfig;
use staffetta_apiserver::{ApiServer, Faults, Options, Proxy, testing};
use tokio::runtime::Runtime;

/// A kubectl with a server, or a way to one, of its own.
pub(crate) struct Kubectl {
    program: PathBuf,
    folder: tempfile::TempDir,
    proxy: Option<Proxy>,
    _server: Option<ApiServer>,
    _runtime: Runtime,
}

impl Kubectl {
    /// With an embedded server; None where there is no kubectl.
    pub(crate) fn embedded() -> Self {
        let program = testing::program("kubectl");
        let runtime = runtime();
        let server = runtime.block_on(ApiServer::start(Options::default())).unwrap();
        let kubeconfig = server.kubeconfig();
        Self::new(program, &kubeconfig, None, Some(server), runtime)
    }

    /// With a proxy before an embedded server; None where there is no kubectl.
    pub(crate) fn proxied() -> Self {
        let program = testing::program("kubectl");
        let runtime = runtime();
        let server = runtime.block_on(ApiServer::start(Options::default())).unwrap();
        let upstream = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let proxy = runtime.block_on(Proxy::start(upstream)).unwrap();
        let kubeconfig = proxy.kubeconfig();
        Self::new(program, &kubeconfig, Some(proxy), Some(server), runtime)
    }

    /// With a proxy before a real server; None where one of the two is not there.
    pub(crate) fn real() -> Self {
        let (program, upstream) = (testing::program("kubectl"), testing::real_kubeconfig());
        let runtime = runtime();
        let proxy = runtime.block_on(Proxy::start(Kubeconfig::read_from(upstream).unwrap())).unwrap();
        let kubeconfig = proxy.kubeconfig();
        Self::new(program, &kubeconfig, Some(proxy), None, runtime)
    }

    fn new(
        program: PathBuf,
        kubeconfig: &str,
        proxy: Option<Proxy>,
        server: Option<ApiServer>,
        runtime: Runtime,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), kubeconfig).unwrap();
        Self { program, folder, proxy, _server: server, _runtime: runtime }
    }

    /// The faults of the proxy.
    pub(crate) fn faults(&self) -> Faults {
        self.proxy.as_ref().unwrap().faults()
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split_whitespace())
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .env("KUBECONFIG", self.folder.path().join("config"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it and returns its output; panics if it fails.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &str) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "kubectl {arguments}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs it and returns its error output; panics if it succeeds.
    #[track_caller]
    pub(crate) fn fail(&self, arguments: &str) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "kubectl {arguments} succeeds");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
