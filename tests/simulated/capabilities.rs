//! The daemon of the CNI plugin with the capabilities of its manifest, and Open vSwitch as a user of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::PROGRAM;
use crate::process::{Process, eventually};
use node::{Node, sh, succeeds};
use switch::OpenVSwitch;

#[path = "../../drivers/binding/tests/namespaces/node.rs"]
mod node;
#[path = "../../drivers/binding/tests/namespaces/switch.rs"]
mod switch;

/// Writes a script that starts the program with the capabilities that the manifest gives to the container of the daemon, and no others.
fn confined(script: &Path) {
    let manifests = include_str!("../../etc/deploy/manifests/cni.yaml");
    let mut objects = manifests.split("\n---\n");
    let set = objects.find(|object| object.contains("\nkind: DaemonSet\n")).unwrap();
    let set: Value = serde_saphyr::from_str(set).unwrap();
    let added = &set["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"];
    let bounds = added
        .as_array()
        .unwrap()
        .iter()
        .fold("-all".to_owned(), |bounds, added| bounds + ",+" + &added.as_str().unwrap().to_lowercase());
    let text = format!("#!/bin/sh\nexec setpriv --inh-caps=-all --bounding-set={bounds} {PROGRAM} \"$@\"\n");
    std::fs::write(script, text).unwrap();
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the CNI command STATUS, and returns its error, if any.
async fn status(socket: &Path) -> Option<Value> {
    let configuration = json!({ "cniVersion": "1.1.0", "name": "staffetta", "daemon": socket });
    let mut child = Command::new(Path::new(PROGRAM).with_file_name("staffetta-cni"))
        .env("CNI_COMMAND", "STATUS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    (!output.status.success()).then(|| serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test]
#[ignore = "needs network namespaces and Open vSwitch: devstack/real/test"]
async fn the_daemon_restores_the_port_of_the_node_with_the_capabilities_of_the_manifest_where_open_vswitch_has_its_own_user()
 {
    let (node, server) = (Node::new(), ApiServer::start(Options::default()).await.unwrap());
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let (database, folder) = (switch.socket(), tempfile::tempdir().unwrap());
    sh(&format!("chown nobody {0} && chmod 0750 {0}", database.display()));
    let (path, script) = (folder.path().display(), folder.path().join("program"));
    confined(&script);
    let id = format!("{:05}99900-0000-4000", node.number);
    let name = format!("tap{}", &id[..11]);
    let configuration = format!(
        "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n\
         [binding]\novsdb = {database:?}\n[node_port]\nport_id = {id:?}\nmac = \"fa:16:3e:00:00:97\"\naddresses = [\"10.96.0.9/24\"]\n\
         bridge = {bridge:?}\n"
    );
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let mut daemon = Process::start_cni_daemon(&script, folder.path(), &configuration, &kubeconfig).await;
    daemon.ready().await;
    let socket = folder.path().join("cni.sock");
    assert_eq!(status(&socket).await, None);

    let works = async || succeeds(&format!("ip addr show {name} | grep -q 10.96.0.9/24"));
    assert!(works().await);
    sh(&format!("ip link del {name}"));
    eventually("the interface of the port is restored", works).await;
    switch.vsctl(&format!("del-port {name}"));
    eventually("the port is restored", works).await;
    // Without its bridge, it cannot be.
    switch.vsctl(&format!("del-br {bridge}"));
    eventually("STATUS tells", async || {
        let error = status(&socket).await;
        error.is_some_and(|error| {
            error["code"] == 50
                && error["cniVersion"] == "1.1.0"
                && error["details"].as_str().unwrap().contains("there is no bridge")
        })
    })
    .await;
    daemon.says("the port of the node does not work").await;
    switch.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev"));
    eventually("STATUS succeeds", async || status(&socket).await.is_none() && works().await).await;
    assert!(daemon.terminate().await.success());
}
