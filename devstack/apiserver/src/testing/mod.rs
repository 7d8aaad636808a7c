//! Locates the real Kubernetes and the programs that ignored tests need.

mod real_server;

use std::path::PathBuf;

pub use real_server::{RealServer, Snapshot};

/// The name of the environment variable with the path of the kubeconfig of a real cluster that tests may use.
pub const REAL_KUBERNETES: &str = "STAFFETTA_REAL_KUBERNETES";

/// Returns the path of the kubeconfig of the real cluster.
///
/// # Panics
/// If [`REAL_KUBERNETES`] is not set.
#[must_use]
pub fn real_kubeconfig() -> PathBuf {
    let path = std::env::var_os(REAL_KUBERNETES).filter(|path| !path.is_empty());
    path.map_or_else(|| panic!("{REAL_KUBERNETES} is not set; run devstack/real/test"), PathBuf::from)
}

/// Returns the path of a program on `PATH`.
///
/// # Panics
/// If there is no such program.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
    candidates.find(|program| program.is_file()).unwrap_or_else(|| panic!("{name} is not on the PATH"))
}
