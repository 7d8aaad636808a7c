//! The program as the kubectl plug-in `kubectl staffetta`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::http::{Fault, Method};

use crate::port_forward::PortForward;
use crate::process::{Process, eventually};
use crate::{PROGRAM, network, options};

const NAMESPACE: &str = "staffetta";

/// A cluster with a controller that leads, and a user with the plug-in.
struct Site {
    client: Client,
    front: PortForward,
    /// The controller, in a pod of the cluster.
    process: Process,
    folder: tempfile::TempDir,
    server: ApiServer,
}

impl Site {
    async fn new(url: &str) -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let front = PortForward::start(&server).await;
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(PROGRAM, folder.path().join("kubectl-staffetta")).unwrap();
        std::fs::write(folder.path().join("user"), front.kubeconfig()).unwrap();
        let configuration = options(url, &format!("namespace = \"{NAMESPACE}\"\n"));
        let process =
            Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
        process.ready().await;
        let site = Self { client, front, process, folder, server };
        let lease = site.leases().get("staffetta").await.unwrap();
        let holder = lease.spec.unwrap().holder_identity.unwrap();
        site.pod(NAMESPACE, holder.rsplit_once('_').unwrap().0).await;
        site
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn pod(&self, namespace: &str, name: &str) {
        self.pod_with(namespace, json!({ "name": name }), json!({ "nodeName": "n1" })).await;
    }

    async fn pod_with(&self, namespace: &str, metadata: Value, mut spec: Value) {
        spec["containers"] = json!([{ "name": "c", "image": "i" }]);
        let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        self.pods(namespace).create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn change_lease(&self, spec: Value) {
        let patch = json!({ "spec": spec });
        self.leases().patch("staffetta", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The exit code, standard output and standard error of the plug-in.
    async fn plugin(&self, line: &str) -> (i32, String, String) {
        let program: PathBuf = self.folder.path().join("kubectl-staffetta");
        let port = self.process.admin().rsplit_once(':').unwrap().1;
        let output = tokio::process::Command::new(program)
            .args(line.split(' '))
            .args(["--admin-port", port])
            .env("KUBECONFIG", self.folder.path().join("user"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .await
            .unwrap();
        let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), said, complained)
    }

    /// The error of `kubectl staffetta status`.
    async fn error(&self) -> String {
        let (code, said, complained) = self.plugin("status").await;
        assert_eq!((code, said.as_str()), (1, ""), "{complained}");
        complained
    }
}

/// A driver that refuses to work.
fn refused() -> Fault {
    Fault::Fail(DriverError::new(Reason::Refused, "ask the switch"))
}

#[tokio::test]
async fn the_plug_in_asks_the_leader_through_its_pod() {
    let (network, faults) = network();
    let site = Site::new(network.url()).await;
    let started = Instant::now();
    let (code, said, complained) = site.plugin("status").await;
    println!("`kubectl staffetta status` took {:?}", started.elapsed());
    assert_eq!((code, complained.as_str()), (0, ""));
    assert!(said.starts_with("staffetta 0.1.0 on ") && said.contains(": leader, ready, up for "), "{said}");

    site.pod("default", "web").await;
    let (code, said, complained) = site.plugin("status pod/web --wait --timeout 60s").await;
    assert_eq!((code, complained.as_str()), (0, ""));
    assert!(said.contains("the object is handled"), "{said}");

    faults.inject(Method::RequestVif, 1000, &refused()).await.unwrap();
    site.pod("default", "stuck").await;
    let (code, said, complained) = site.plugin("status pods stuck -n default --wait --timeout 1s").await;
    assert_eq!(code, 1, "{said}");
    assert!(complained.contains("the object was not handled within 1s"), "{complained}");
    eventually("the wide table names the pod", async || {
        let (_, said, _) = site.plugin("status -o wide").await;
        said.lines().any(|line| {
            line.starts_with("vif ") && line.contains("  default  ") && line.contains("  stuck  ")
        })
    })
    .await;
    let (_, said, _) = site.plugin("status pod/stuck -o yaml").await;
    let state: Value = serde_saphyr::from_str(&said).unwrap();
    assert_eq!((&state["known"], &state["objects"][0]["name"]), (&json!(true), &json!("stuck")), "{said}");

    let (code, said, complained) = site.plugin("explain po stuck").await;
    assert_eq!((code, complained.as_str()), (0, ""));
    assert!(said.starts_with("Pod default/stuck\ncontroller "), "{said}");
    for part in [
        "\nobject       is watched\n",
        "\n  error      request a VIF: ask the switch",
        "\n  reason     DriverRefused: ",
        "\n  remedy     see the message",
        "\n  request    POST /",
        ": 422 after ",
        " ago (",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    assert_eq!(site.plugin("log-level debug").await, (0, "debug\n".into(), String::new()));
    assert_eq!(site.plugin("log-level -o yaml").await, (0, "level: debug\n".into(), String::new()));
}

#[tokio::test]
async fn explain_says_why_a_handler_does_not_take_an_object() {
    let (network, _) = network();
    let site = Site::new(network.url()).await;
    let annotations = json!({ "staffetta.dev/managed": "false" });
    let web = json!({ "nodeName": "n1" });
    site.pod_with("default", json!({ "name": "web" }), web.clone()).await;
    site.pod_with("default", json!({ "name": "alone", "annotations": annotations }), web).await;
    site.pod_with("default", json!({ "name": "new" }), json!({})).await;
    let host = json!({ "nodeName": "n1", "hostNetwork": true });
    site.pod_with("default", json!({ "name": "host" }), host).await;
    for (name, last) in [
        ("web", "has handled the object"),
        ("alone", "does not take the object: its annotation `staffetta.dev/managed` is \"false\""),
        ("new", "does not take the object: it has no node yet"),
        ("host", "does not take the object: it uses the network of its node (hostNetwork)"),
    ] {
        eventually(last, async || {
            let (code, said, complained) = site.plugin(&format!("explain pod/{name}")).await;
            assert_eq!((code, complained.as_str()), (0, ""));
            said.ends_with(&format!("object       is watched\nvif          {last}\n"))
        })
        .await;
    }
    let (_, said, _) = site.plugin("explain pod/new -o json").await;
    let explained: Value = serde_json::from_str(&said).unwrap();
    let expected = json!({ "taken": false, "reason": "it has no node yet" });
    assert_eq!(explained["handlers"][0]["interest"], expected, "{said}");
}

#[tokio::test]
async fn the_plug_in_checks_the_controller_and_its_systems() {
    let (network, _) = network();
    let mut site = Site::new(network.url()).await;
    let (code, said, complained) = site.plugin("check").await;
    assert_eq!((code, complained.as_str()), (0, ""), "{said}");
    for line in [
        "controller",
        "  ok       the leader answers",
        "  ok       the controller has the version of this program: 0.1.0",
        "readiness",
        "  ok       watch Pod",
        "simulated",
        "  ok       simulated answers",
        "rights",
        "  ok       the leader election has its rights",
        "  ok       the handler vif has its rights",
    ] {
        assert!(said.lines().any(|shown| shown == line), "{line}: {said}");
    }

    drop(network);
    let (code, said, complained) = site.plugin("check -o json").await;
    assert_eq!((code, complained.as_str()), (1, "error: a check failed; the report shows the remedies\n"));
    let report: Value = serde_json::from_str(&said).unwrap();
    let failed: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["result"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{said}");
    assert_eq!(
        (&failed[0]["category"], &failed[0]["check"]),
        (&json!("simulated"), &json!("simulated answers"))
    );
    assert!(
        failed[0]["detail"]
            .as_str()
            .unwrap()
            .starts_with("the simulated cloud at `simulated.url` does not answer")
    );

    site.process.kill("KILL").await;
    site.process.ends().await;
    site.change_lease(json!({ "renewTime": "2026-01-01T00:00:00.000000Z" })).await;
    let (code, said, _) = site.plugin("check").await;
    assert_eq!(code, 1);
    assert!(said.contains("  FAILED   a replica leads, and renews its Lease: "), "{said}");
    assert!(
        said.contains("  FAILED   the leader answers: ") && said.contains("remedy: see whether the pods"),
        "{said}"
    );
}

#[tokio::test]
async fn the_plug_in_says_why_the_leader_cannot_be_asked() {
    let (network, _) = network();
    let mut site = Site::new(network.url()).await;
    site.front.forbid();
    let error = site.error().await;
    assert!(error.contains("you may not port-forward to pods in the namespace `staffetta`"), "{error}");
    assert!(error.contains("the ClusterRole `staffetta-operator`"), "{error}");

    // The user may, and the controller is stopped without a chance to release the Lease.
    site.front = PortForward::start(&site.server).await;
    std::fs::write(site.folder.path().join("user"), site.front.kubeconfig()).unwrap();
    site.process.kill("KILL").await;
    site.process.ends().await;
    site.change_lease(json!({ "renewTime": "2026-01-01T00:00:00.000000Z" })).await;
    let error = site.error().await;
    assert!(error.contains("does not listen at port") && error.contains("--admin-port"), "{error}");
    assert!(error.contains("has expired after 15 s: no replica leads"), "{error}");

    site.change_lease(json!({ "holderIdentity": "gone_0000000000000abc" })).await;
    assert!(site.error().await.contains("the leader's pod staffetta/gone does not exist"));
    site.change_lease(json!({ "holderIdentity": null })).await;
    assert!(site.error().await.contains("no replica leads: the Lease staffetta/staffetta has no holder"));
    site.leases().delete("staffetta", &kube::api::DeleteParams::default()).await.unwrap();
    assert!(site.error().await.contains("the namespace `staffetta` has no Lease `staffetta`"));

    let (code, _, complained) = site.plugin("status --context other").await;
    assert_eq!(code, 1);
    assert!(complained.contains("cannot use the context `other`"), "{complained}");
    assert_eq!(site.plugin("status a/b/c").await.0, 2);
}

#[tokio::test]
async fn the_plug_in_finds_the_leader_on_the_network_of_its_node() {
    let (network, _) = network();
    let site = Site::new(network.url()).await;
    let lease = site.leases().get("staffetta").await.unwrap();
    let host = lease.spec.unwrap().holder_identity.unwrap().rsplit_once('_').unwrap().0.to_owned();
    let params = kube::api::DeleteParams::default().grace_period(0);
    site.pods(NAMESPACE).delete(&host, &params).await.unwrap();
    let pod = json!({ "metadata": { "name": "replica", "labels": { "app.kubernetes.io/name": "staffetta" } },
        "spec": { "nodeName": host, "hostNetwork": true, "containers": [{ "name": "c", "image": "i" }] } });
    let pod = serde_json::from_value(pod).unwrap();
    site.pods(NAMESPACE).create(&PostParams::default(), &pod).await.unwrap();
    let running = json!({ "status": { "phase": "Running" } });
    site.pods(NAMESPACE)
        .patch_status("replica", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    let (code, said, complained) = site.plugin("status").await;
    assert_eq!((code, complained.as_str()), (0, ""));
    assert!(said.contains(": leader, ready, up for "), "{said}");
}
