//! The manifests for an OpenStack: drivers and access to the cloud.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};

use crate::PROGRAM;
use crate::process::{Process, eventually};
use crate::rendered::{PRESETS, configuration, container, file, objects, pod};

/// Nobody listens there.
const CLOUDS: &str = "clouds:
  openstack:
    auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: hunter2, project_name: p}
";

#[test]
fn no_configuration_names_the_cluster() {
    for preset in PRESETS {
        let cluster_id = configuration(&objects(preset)).kubernetes.cluster_id;
        assert_eq!(cluster_id, None, "two clusters would have one id: {preset}");
    }
}

#[tokio::test]
async fn the_configuration_for_an_openstack_starts_its_drivers_and_waits_for_the_cloud() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let clouds = home.path().join("clouds.yaml");
    fs::write(&clouds, CLOUDS).unwrap();
    let objects = objects("openstack");
    let environment = [("OS_CLIENT_CONFIG_FILE", clouds.as_path())];
    let process = Process::start_in(
        &environment,
        Path::new(PROGRAM),
        home.path(),
        file(&objects),
        &server.kubeconfig(),
    )
    .await;
    eventually("it says at /readyz that there is no cloud", async || {
        let (code, reasons) = process.get("/readyz?verbose").await;
        assert!(!reasons.contains("hunter2"), "{reasons}");
        code == 503 && reasons.contains("127.0.0.1:9")
    })
    .await;
}

#[test]
fn the_secret_with_the_cloud_lies_where_the_drivers_look_for_it() {
    let objects = objects("openstack");
    let find = |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == "openstack").cloned();
    let secret = json!({ "name": "openstack", "secret": { "secretName": "staffetta-openstack" } });
    assert_eq!(find(&pod(&objects)["volumes"]), Some(secret));
    let mount = json!({ "name": "openstack", "mountPath": "/etc/openstack", "readOnly": true });
    assert_eq!(find(&container(&objects)["volumeMounts"]), Some(mount));
}
