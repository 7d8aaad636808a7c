//! The version of the program.

use std::fmt;

use serde::Serialize;

/// The version of the program and what it was built with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildInfo {
    pub(crate) version: &'static str,
    /// The commit of the source, from the variable `STAFFETTA_COMMIT` of the build or the repository of the source; without either, `unknown`.
    pub(crate) commit: &'static str,
    /// The version of the Kubernetes API whose types the program knows.
    pub(crate) kubernetes: &'static str,
    /// The version of the crate k8s-openapi.
    pub(crate) k8s_openapi: &'static str,
    /// The Rust target triple for which the program was built.
    pub(crate) target: &'static str,
}

/// The version of this program.
pub(crate) const VERSION: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("STAFFETTA_COMMIT") {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    },
    kubernetes: env!("STAFFETTA_KUBERNETES_API"),
    k8s_openapi: env!("STAFFETTA_K8S_OPENAPI"),
    target: env!("STAFFETTA_TARGET"),
};

impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, commit, kubernetes, k8s_openapi, target } = self;
        writeln!(f, "staffetta {version}")?;
        writeln!(f, "commit      {commit}")?;
        writeln!(f, "Kubernetes  {kubernetes} (k8s-openapi {k8s_openapi})")?;
        writeln!(f, "target      {target}")
    }
}
