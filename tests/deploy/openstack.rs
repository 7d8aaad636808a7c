//! The manifests for an OpenStack: drivers and access to the cloud.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};

use crate::manifests::{configuration, document, of_kind, rendered, strings};
use crate::process::{Process, eventually};
use crate::site::overlay;
use crate::{PROGRAM, folder};

/// Nobody listens there.
const CLOUDS: &str = "clouds:
  openstack:
    auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: hunter2, project_name: p}
";

#[test]
fn what_writes_invented_addresses_says_so_and_what_is_for_an_openstack_writes_none() {
    let text = |path: &str| fs::read_to_string(folder().join(path)).unwrap();
    for path in ["base/staffetta.toml", "example/staffetta.toml"] {
        let choice = text(path).find("pod_vif_driver = \"memory\"").expect(path);
        let warning = text(path).find("SIMULATED").expect(path);
        assert!(warning < choice, "{path}");
    }
    let base: toml::Table = toml::from_str(&text("base/staffetta.toml")).unwrap();
    let simulated: Vec<_> = base["kubernetes"]
        .as_table()
        .unwrap()
        .iter()
        .filter(|(_, it)| it.as_str() == Some("memory"))
        .collect();
    assert_eq!(simulated.len(), 9, "the drivers of the three handlers: {simulated:?}");
    let of_openstack = &configuration("openstack/staffetta.toml").value["kubernetes"];
    for (option, _) in simulated {
        assert_ne!(of_openstack[option], "memory", "{option}");
    }
    let components = strings(&document("openstack/kustomization.yaml")["components"]);
    assert!(components.contains(&"../drivers/vif_pool".to_owned()), "a pool watches nodes");
}

#[test]
fn no_configuration_that_is_applied_unchanged_names_the_cluster() {
    for path in ["openstack/staffetta.toml", "base/staffetta.toml"] {
        let cluster_id = configuration(path).kubernetes.cluster_id;
        assert_eq!(cluster_id, None, "two clusters would have one id: {path}");
    }
}

#[tokio::test]
async fn the_configuration_for_an_openstack_starts_its_drivers_and_waits_for_the_cloud() {
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let clouds = home.path().join("clouds.yaml");
    fs::write(&clouds, CLOUDS).unwrap();
    let text = fs::read_to_string(folder().join("openstack/staffetta.toml")).unwrap();
    let environment = [("OS_CLIENT_CONFIG_FILE", clouds.as_path())];
    let process =
        Process::start_in(&environment, Path::new(PROGRAM), home.path(), &text, &server.kubeconfig()).await;
    eventually("it says at /readyz that there is no cloud", async || {
        let (code, reasons) = process.get("/readyz?verbose").await;
        assert!(!reasons.contains("hunter2"), "{reasons}");
        code == 503 && reasons.contains("127.0.0.1:9")
    })
    .await;
}

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn the_secret_with_the_cloud_lies_where_the_drivers_look_for_it_with_kubectl() {
    let overlay = overlay("other", "openstack", &[]);
    let objects = rendered(overlay.path());
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    let find = |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == "openstack").cloned();
    let secret = json!({ "name": "openstack", "secret": { "secretName": "staffetta-openstack" } });
    assert_eq!(find(&pod["volumes"]), Some(secret));
    let mount = json!({ "name": "openstack", "mountPath": "/etc/openstack", "readOnly": true });
    assert_eq!(find(&pod["containers"][0]["volumeMounts"]), Some(mount));
    let map = &of_kind(&objects, "ConfigMap")[0]["data"]["staffetta.toml"];
    let file = fs::read_to_string(folder().join("openstack/staffetta.toml")).unwrap();
    assert_eq!(map, &json!(file));
}
