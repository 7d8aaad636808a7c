//! Passes to the program what only Cargo knows: the target, and the versions of k8s-openapi and of its Kubernetes API.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
