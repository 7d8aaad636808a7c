//! The command `staffetta migrate kuryr` as an administrator runs it.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Options};
use tokio::process::Command;

use crate::kuryr::{POD, PORT, create, define, resources};

/// Runs the command with `arguments`. Returns its exit code and what it printed, each row with single spaces.
async fn command(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let configuration = folder.join("staffetta.toml");
    let drivers = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/etc/simulated.toml"));
    std::fs::write(&configuration, format!("{drivers}adoption_driver = \"memory\"\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_staffetta"))
        .args(["migrate", "kuryr", "--kubeconfig"])
        .arg(folder.join("kubeconfig"))
        .arg("--config")
        .arg(&configuration)
        .args(arguments)
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let rows = printed.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
    (output.status.code(), rows.collect::<Vec<_>>().join("\n"))
}

/// Migrates a pod to which Kuryr has given no VIF yet. Another pod has an annotation that names a port of nobody.
async fn migrate(client: &Client, folder: &Path) {
    define(client).await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let spec = json!({ "nodeName": "n1", "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i" }] });
    let pod = json!({ "metadata": { "name": "new", "finalizers": [POD] }, "spec": spec });
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let uid = pod.metadata.uid.unwrap();
    create(client, ("KuryrPort", PORT), ("Pod", "new", &uid), json!({ "spec": { "podUid": uid } })).await;
    let annotations = json!({ "openstack.org/kuryr-vif": "{}" });
    let forged = json!({ "metadata": { "name": "forged", "annotations": annotations }, "spec": spec });
    pods.create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();

    let (code, shown) = command(folder, &[]).await;
    let [head, new, refused] = shown.lines().collect::<Vec<_>>()[..] else { panic!("{shown}") };
    assert_eq!((code, head), (Some(1), "KIND NAMESPACE NAME RESULT"));
    assert_eq!(new, format!("Pod default new remove {POD}, remove {PORT}"));
    assert!(refused.starts_with("Pod default forged refused: "), "{refused}");
    assert_eq!(pods.get("new").await.unwrap().finalizers(), [POD], "it is only shown");

    let (code, applied) = command(folder, &["--apply"]).await;
    assert!(code == Some(1) && applied.contains("\nPod default new done\n"), "{applied}");
    assert_eq!(pods.get("new").await.unwrap().finalizers(), [""; 0]);
    assert_eq!(resources(client, "KuryrPort").get("new").await.unwrap().finalizers(), [""; 0]);
    let removed = Patch::Merge(json!({ "metadata": { "annotations": { "openstack.org/kuryr-vif": null } } }));
    pods.patch("forged", &PatchParams::default(), &removed).await.unwrap();
    assert_eq!(command(folder, &["--apply"]).await, (Some(0), head.to_owned()));
}

#[tokio::test]
async fn the_command_shows_then_migrates_and_fails_as_long_as_something_is_refused() {
    let (server, folder) =
        (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    migrate(&client, folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_command_shows_then_migrates_and_fails_as_long_as_something_is_refused_on_a_real_server() {
    let (server, folder) = (RealServer::start(&[]).await, tempfile::tempdir().unwrap());
    std::fs::copy(server.kubeconfig(), folder.path().join("kubeconfig")).unwrap();
    let client = staffetta::connect::client(Some(server.kubeconfig()), None).await.unwrap();
    migrate(&client, folder.path()).await;
}
