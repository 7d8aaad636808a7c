//! Passes to the program what only Cargo knows: the target, and the versions of k8s-openapi and of its Kubernetes API.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STAFFETTA_COMMIT");
    println!("cargo::rustc-env=STAFFETTA_COMMIT={}", commit());
    let target = env::var("TARGET").expect("Cargo sets it");
    println!("cargo::rustc-env=STAFFETTA_TARGET={target}");
    // k8s-openapi passes DEP_K8S_OPENAPI_0_29_0_VERSION with the number 0x00_01_21_00 for Kubernetes 1.33.
    let (name, api) =
        env::vars().find(|(name, _)| name.starts_with("DEP_K8S_OPENAPI_")).expect("k8s-openapi sets it");
    let version = name.trim_start_matches("DEP_K8S_OPENAPI_").trim_end_matches("_VERSION").replace('_', ".");
    let api: u32 = api.parse().expect("k8s-openapi sets a number");
    println!("cargo::rustc-env=STAFFETTA_K8S_OPENAPI={version}");
    println!("cargo::rustc-env=STAFFETTA_KUBERNETES_API={}.{}", api >> 16, api >> 8 & 0xff);
}

/// Returns the commit of the source: that of the variable `STAFFETTA_COMMIT`, otherwise that of the repository which contains this folder, and
/// an empty text without either.
fn commit() -> String {
    if let Ok(commit) = env::var("STAFFETTA_COMMIT") {
        return commit;
    }
    // It has a line for each commit and checkout.
    let log = Path::new(".git/logs/HEAD");
    if !log.exists() {
        return String::new();
    }
    println!("cargo::rerun-if-changed={}", log.display());
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
