//! The manifests of the CNI daemon, checked without a cluster.

use std::path::Path;

use serde_json::{Value, json};
use staffetta::config::Configuration;
use staffetta_cni_daemon::{CniDaemonOptions, Listen};

use crate::manifests::strings;
use crate::rendered::{objects, only};
use crate::rights::of_rules;

fn pod() -> Value {
    crate::rendered::pod(&objects("cni")).clone()
}

/// The configuration as the daemon reads it in its pod.
fn configuration() -> Configuration {
    let variable = &pod()["containers"][0]["env"][0];
    assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    crate::rendered::configuration(&objects("cni"))
}

fn options() -> CniDaemonOptions {
    serde_json::from_value(configuration().value["cni_daemon"].clone()).unwrap()
}

#[test]
fn the_daemon_reads_pods_and_writes_events_and_nothing_else() {
    let objects = objects("cni");
    let role = only(&objects, "ClusterRole");
    let expected = ["get pods", "list pods", "watch pods", "create events.events.k8s.io", "patch events"];
    assert_eq!(of_rules(&role["rules"]), expected.map(str::to_owned).into());
}

#[test]
fn the_daemon_has_the_network_of_the_node_and_four_capabilities() {
    let pod = pod();
    let labels = &only(&objects("cni"), "Namespace")["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    assert_eq!(
        (&pod["hostNetwork"], &pod["hostPID"], &pod["hostIPC"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    assert_eq!(pod["enableServiceLinks"], false, "links look like options: STAFFETTA_...");
    assert_eq!(
        pod["containers"][0]["securityContext"],
        json!({ "runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "seccompProfile": { "type": "RuntimeDefault" },
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN", "SYS_ADMIN", "NET_RAW", "DAC_OVERRIDE"] } })
    );
}

#[test]
fn all_that_the_daemon_writes_lies_in_folders_of_the_node() {
    let (pod, options) = (pod(), options());
    let Listen::Unix(socket) = &options.listen else { panic!("{:?}", options.listen) };
    let conflist = options.conflist.as_ref().unwrap();
    let of_node = |folder: &Path| {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == folder.to_str().unwrap()).unwrap();
        assert_eq!(mount["readOnly"], Value::Null, "{}", folder.display());
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["hostPath"]["path"], folder.to_str().unwrap());
    };
    of_node(socket.parent().unwrap());
    of_node(&options.state_folder);
    of_node(conflist.parent().unwrap());
    assert_eq!(options.node_name.as_deref(), Some("192.0.2.7"));
}

#[test]
fn namespaces_that_appear_while_the_daemon_runs_are_seen_in_it() {
    let pod = pod();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let namespaces: Vec<_> = mounts.iter().filter(|mount| mount["name"] == "namespaces").collect();
    assert_eq!(namespaces.len(), 2);
    assert!(namespaces.iter().all(|mount| mount["mountPropagation"] == "HostToContainer"));
}

#[test]
fn the_probes_ask_the_loopback_address_where_the_daemon_listens() {
    let (pod, listen) = (pod(), configuration().admin.listen);
    assert!(listen.ip().is_loopback());
    for probe in ["livenessProbe", "readinessProbe"] {
        let asked = &pod["containers"][0][probe]["httpGet"];
        assert_eq!((&asked["host"], &asked["port"]), (&json!(listen.ip()), &json!(listen.port())), "{probe}");
    }
    assert_eq!(strings(&pod["containers"][0]["args"]), ["cni-daemon"]);
}

#[test]
fn the_page_removes_all_that_the_release_leaves_on_a_node() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cni.md")).unwrap();
    let removed = page.lines().find_map(|line| line.strip_prefix("rm -rf ")).unwrap();
    let (pod, options) = (pod(), options());
    let Listen::Unix(socket) = &options.listen else { panic!("{:?}", options.listen) };
    let install = strings(&pod["initContainers"][0]["command"]);
    let plugin = Path::new(install.last().unwrap()).join(staffetta_cni::conflist::PLUGIN);
    let left = [
        options.conflist.clone().unwrap(),
        plugin,
        options.state_folder,
        socket.parent().unwrap().to_owned(),
    ];
    assert_eq!(removed.split(' ').map(Path::new).collect::<Vec<_>>(), left);
    assert!(page.contains(&format!("\nrm {}\n", left[0].display())), "and the configuration before");
}
