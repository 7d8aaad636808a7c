//! Where tests find a real Kubernetes, and what they do when there is none.

mod real_server;

use std::path::PathBuf;

pub use real_server::{RealServer, Snapshot};

/// Names the kubeconfig of a real cluster that tests may use.
pub const REAL_KUBERNETES: &str = "STAFFETTA_REAL_KUBERNETES";
/// `all` makes a skipped test a failed one.
pub const REQUIRE: &str = "STAFFETTA_REQUIRE";

/// The kubeconfig of the real cluster. Without one the test says that it is skipped, and has to return.
///
/// # Panics
/// Where every test is required.
#[must_use]
pub fn real_kubeconfig() -> Option<PathBuf> {
    let found = std::env::var_os(REAL_KUBERNETES).filter(|path| !path.is_empty());
    if found.is_none() {
        skip(&format!("{REAL_KUBERNETES} is not set"));
    }
    found.map(PathBuf::from)
}

/// The path of a program. Without it the test says that it is skipped, and has to return.
///
/// # Panics
/// Where every test is required.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    if found.is_none() {
        skip(&format!("{name} is not on the PATH"));
    }
    found
}

/// Says that a test is skipped, which has to return.
///
/// # Panics
/// Where every test is required.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test must say so, and the test harness shows what is printed"
)]
pub fn skip(why: &str) {
    assert!(
        std::env::var_os(REQUIRE).is_none_or(|required| required != "all"),
        "required by {REQUIRE}=all: {why}"
    );
    eprintln!("skipped: {why}");
}
