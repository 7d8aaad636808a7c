//! Finds or starts the services.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use http::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::agents::Agents;
use crate::api::Api;
use crate::calls::Calls;
use crate::gate::Gate;
use crate::tenant::Tenant;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../real/openstack");
/// Names the clouds.yaml of the services that tests may use.
const REAL_OPENSTACK: &str = "STAFFETTA_REAL_OPENSTACK";
/// Names the folder in which the script keeps the state of what runs.
const STATE: &str = "STAFFETTA_REAL_STATE";

/// The tests of a process share the services, but for one that stops them.
static EXCLUSIVE: RwLock<()> = RwLock::const_new(());

/// A service that can be stopped and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Keystone: identity.
    Keystone,
    /// Neutron: networks.
    Neutron,
    /// Octavia: load balancers.
    Octavia,
    /// The database of all services.
    Database,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Keystone => "keystone",
            Self::Neutron => "neutron",
            Self::Octavia => "octavia",
            Self::Database => "database",
        }
    }
}

/// Keystone, Neutron and Octavia on loopback. Services that this value has started end when it is dropped.
pub struct RealOpenStack {
    state: State,
    api: Arc<Api>,
    sharing: Sharing,
}

enum State {
    /// Somebody else started them, and ends them.
    Shared(PathBuf),
    Private(TempDir),
}

/// Kept for as long as the services are used.
enum Sharing {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
    Private,
}

impl RealOpenStack {
    /// Returns the services that `devstack/real/test` or a developer has started, shared with other tests.
    pub async fn shared() -> Self {
        Self::at(&clouds(), Sharing::Shared { _guard: EXCLUSIVE.read().await })
    }

    /// Returns the same services for this test alone: no other test of this process uses them at the same time, so they may be
    /// stopped.
    pub async fn alone() -> Self {
        Self::at(&clouds(), Sharing::Alone { _guard: EXCLUSIVE.write().await })
    }

    /// Starts separate services, for a benchmark. Installs missing programs first. `flags` are passed to `up`.
    pub async fn launch(flags: &[&str]) -> Self {
        let state = tempfile::Builder::new().prefix("private.").tempdir().expect("a folder can be made");
        let state = State::Private(state);
        run(state.folder(), "up", flags).await;
        let api = Arc::new(Api::new(ports(state.folder())));
        Self { state, api, sharing: Sharing::Private }
    }

    fn at(clouds: &Path, sharing: Sharing) -> Self {
        let state = clouds.ancestors().nth(2).expect("clouds.yaml lies in a folder of the state");
        let api = Arc::new(Api::new(ports(state)));
        Self { state: State::Shared(state.into()), api, sharing }
    }

    /// Creates a project that no other test uses, with a user for a controller. It is not deleted when the test ends.
    pub async fn tenant(&self) -> Tenant {
        Tenant::new(Arc::clone(&self.api)).await
    }

    /// Returns the stand-in for the agents of all nodes.
    #[must_use]
    pub fn agents(&self) -> Agents {
        Agents(Arc::clone(&self.api))
    }

    /// Returns the endpoint of Neutron, without a version.
    #[must_use]
    pub fn neutron(&self) -> &str {
        &self.api.neutron
    }

    /// Returns the endpoint of Octavia, without a version.
    #[must_use]
    pub fn octavia(&self) -> &str {
        &self.api.octavia
    }

    /// Returns a token of the administrator.
    pub async fn token(&self) -> String {
        self.api.token(None).await
    }

    /// Starts a reverse proxy in front of the services, which injects faults.
    pub async fn gate(&self) -> Gate {
        Gate::open(&self.api).await
    }

    /// Returns all requests that a service has received so far.
    pub async fn calls(&self, service: Service) -> Calls {
        let url = match service {
            Service::Keystone => &self.api.keystone,
            Service::Neutron => &self.api.neutron,
            Service::Octavia => &self.api.octavia,
            Service::Database => panic!("a database is not asked over HTTP"),
        };
        let (status, answer) = self.api.beside(Method::GET, &format!("{url}/_requests")).await;
        assert!(status.is_success(), "{url} does not tell what it was asked: {status} {answer}");
        Calls(serde_json::from_value(answer).expect("it tells it in this form"))
    }

    /// Revokes a token; see [`Gate::token`] for the token of a controller.
    pub async fn revoke(&self, token: &str) {
        self.api.revoke(token).await;
    }

    /// Stops a service; its stored data is kept.
    pub async fn stop(&self, service: Service) {
        run(self.state.folder(), "down", &[service.name()]).await;
    }

    /// Starts the stopped services at their previous addresses, and waits until they respond.
    pub async fn resume(&self) {
        self.resume_with(&[]).await;
    }

    /// Starts the stopped services with other `flags` of `up`, which apply until other ones are given.
    pub async fn resume_with(&self, flags: &[&str]) {
        run(self.state.folder(), "up", flags).await;
    }

    /// Hides a file that Octavia needs to create load balancers, until the result is dropped: each load balancer that is
    /// requested meanwhile ends in ERROR.
    ///
    /// # Panics
    /// If the file is not where the script puts it.
    #[must_use]
    pub fn without_certificates(&self) -> Hidden {
        let file = self.state.folder().join("openstack/octavia/ca.crt");
        let hidden = file.with_extension("hidden");
        std::fs::rename(&file, &hidden).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Hidden { file, hidden }
    }

    /// Creates a region of the cloud, without any service.
    pub async fn region(&self, name: &str) {
        self.api.identity(Method::POST, "regions", Some(json!({ "region": { "id": name } }))).await;
    }

    /// Adds Neutron to this region of the service catalogue, too.
    pub async fn move_into(&self, region: &str) {
        let found = self.api.identity(Method::GET, "services?type=network", None).await;
        let endpoint = json!({ "endpoint": { "service_id": found["services"][0]["id"], "interface": "public",
            "region_id": region, "url": self.api.neutron } });
        self.api.identity(Method::POST, "endpoints", Some(endpoint)).await;
    }
}

/// A file that is hidden from its service. It is restored when this value is dropped.
pub struct Hidden {
    file: PathBuf,
    hidden: PathBuf,
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A test that has failed already is not to fail for this too.
        drop(std::fs::rename(&self.hidden, &self.file));
    }
}

impl Drop for RealOpenStack {
    fn drop(&mut self) {
        match &self.state {
            // A test that has failed already is not to fail for this too, and who runs it sees what the script says.
            State::Private(folder) => drop(command(folder.path(), "down", &["--wipe"]).status()),
            State::Shared(folder) => {
                if matches!(self.sharing, Sharing::Alone { .. }) {
                    drop(command(folder, "up", &[] as &[&str]).stdout(Stdio::null()).status());
                }
            }
        }
    }
}

impl State {
    fn folder(&self) -> &Path {
        match self {
            Self::Shared(folder) => folder,
            Self::Private(folder) => folder.path(),
        }
    }
}

/// The clouds.yaml that the script names.
fn clouds() -> PathBuf {
    let path = std::env::var_os(REAL_OPENSTACK).filter(|path| !path.is_empty());
    let missing = || panic!("{REAL_OPENSTACK} is not set; run devstack/real/test real_openstack");
    path.map_or_else(missing, PathBuf::from)
}

/// The ports of the services, as the script recorded them.
fn ports(state: &Path) -> [u16; 3] {
    let file = state.join("openstack/ports");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let ports: HashMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
    ["KEYSTONE_PORT", "NEUTRON_PORT", "OCTAVIA_PORT"].map(|name| {
        let port = ports.get(name).and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("{} says nothing of {name}", file.display()))
    })
}

async fn run(state: &Path, verb: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) {
    let command = command(state, verb, arguments);
    let words = format!("{command:?}");
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await;
    let Output { status, stderr, .. } = output.unwrap_or_else(|error| panic!("{words}: {error}"));
    assert!(status.success(), "{words}: {}", String::from_utf8_lossy(&stderr));
}

fn command(state: &Path, verb: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new("bash");
    command.arg(SCRIPT).arg(verb).args(arguments).env(STATE, state).stdin(Stdio::null());
    command
}
