//! The Helm chart of a release, pulled by Helm from a registry that serves the OCI artefact.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::files::{VERSION, Workshop, shell};

/// The folder of an unpacked OCI image layout.
type Layout = PathBuf;

type Answer = Result<([(HeaderName, String); 2], Vec<u8>), StatusCode>;

/// Returns a blob of the layout with its media type.
fn blob(layout: &Layout, digest: &str, media_type: &str) -> Answer {
    let name = digest.strip_prefix("sha256:").ok_or(StatusCode::NOT_FOUND)?;
    let bytes = fs::read(layout.join("blobs/sha256").join(name)).map_err(|_| StatusCode::NOT_FOUND)?;
    let digest_header = HeaderName::from_static("docker-content-digest");
    Ok(([(header::CONTENT_TYPE, media_type.to_owned()), (digest_header, digest.to_owned())], bytes))
}

async fn manifest(State(layout): State<Layout>, Path(reference): Path<String>) -> Answer {
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let descriptor = &index["manifests"][0];
    let digest = descriptor["digest"].as_str().unwrap();
    if reference != digest && descriptor["annotations"]["org.opencontainers.image.ref.name"] != *reference {
        return Err(StatusCode::NOT_FOUND);
    }
    blob(&layout, digest, descriptor["mediaType"].as_str().unwrap())
}

/// Serves the layout as the repository `staffetta` of a registry, by the OCI Distribution Specification 1.1, sections "Pull" and
/// "Listing Tags". Returns its address.
async fn registry(layout: Layout) -> String {
    let tags = Json(json!({ "name": "staffetta", "tags": [VERSION] }));
    let content = |State(layout): State<Layout>, Path(digest): Path<String>| async move {
        blob(&layout, &digest, "application/octet-stream")
    };
    let router = Router::new()
        .route("/v2/", get(StatusCode::OK))
        .route("/v2/staffetta/tags/list", get(async move || tags))
        .route("/v2/staffetta/manifests/{reference}", get(manifest))
        .route("/v2/staffetta/blobs/{digest}", get(content))
        .with_state(layout);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs helm: devstack/real/test"]
async fn helm_pulls_the_chart_of_a_release_from_a_registry() {
    let workshop = Workshop::new();
    let release = workshop.release("release");
    let unpack = format!("mkdir layout && tar -xf release/staffetta-{VERSION}-chart.tar -C layout");
    assert!(shell(workshop.path(), &unpack).status.success());
    let address = registry(workshop.path().join("layout")).await;
    let pull = Command::new("helm")
        .args(["pull", &format!("oci://{address}/staffetta"), "--version", VERSION, "--plain-http"])
        .current_dir(workshop.path())
        .env("HOME", workshop.path())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(pull.status.success(), "{pull:?}");
    let pulled = fs::read(workshop.path().join(format!("staffetta-{VERSION}.tgz"))).unwrap();
    assert_eq!(pulled, fs::read(release.join(format!("staffetta-{VERSION}-chart.tgz"))).unwrap());
    let shown = shell(workshop.path(), &format!("HOME=$PWD helm show chart staffetta-{VERSION}.tgz"));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("\nname: staffetta\n"));
}
