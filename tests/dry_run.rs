//! Tests of `staffetta run --dry-run` as a process: it prints a plan and writes nothing, and a later controller does what the
//! plan contains.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use process::{Process, SIMULATED, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_apiserver::{ApiServer, Options};
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

#[tokio::test]
async fn a_controller_does_what_the_dry_run_planned_on_the_embedded_server() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let place = Place::new(&server.kubeconfig(), "default").await;
    place.furnish().await;
    server.clear_requests();
    let planned = place.dry_run_writes_nothing().await;
    assert!(server.requests().iter().all(|request| !request.is_write() || request.dry_run));
    place.a_controller_does_it(&planned).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_controller_does_what_the_dry_run_planned_on_a_real_server() {
    let kubeconfig = real_kubeconfig();
    let namespace = format!("dry-run-{}", std::process::id());
    let place = Place::new(&std::fs::read_to_string(kubeconfig).unwrap(), &namespace).await;
    place.found().await;
    place.furnish().await;
    let planned = place.dry_run_writes_nothing().await;
    place.a_controller_does_it(&planned).await;
    let namespaces = Api::<Namespace>::all(place.client.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn an_incomplete_plan_is_printed_and_exits_with_1() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let place = Place::new(&server.kubeconfig(), "default").await;
    let broken = json!({ "openstack.org/kuryr-vif": "broken" });
    place.create::<Pod>(&pod("broken", &json!({ "annotations": broken }))).await;
    let output = place.dry_run(&[]).await;
    let (plan, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(plan.starts_with("Pod default/broken\n  vif: would fail: read the VIFs of the pod: "), "{plan}");
    assert!(
        said.ends_with(
            "error: the plan is incomplete, or parts of it would fail; see the plan for details\n"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn a_dry_run_without_a_server_ends_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let cluster = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{ "name": "u", "user": {} }],
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{nobody}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }] });
    std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--dry-run", "--kubeconfig"]).arg(&kubeconfig);
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let plan = text(&output.stdout);
    assert!(plan.starts_with("not planned: the API server does not answer: "), "{plan}");
}

/// A namespace of a cluster, and a program that is told of it.
struct Place {
    client: Client,
    kubeconfig: String,
    namespace: String,
    folder: tempfile::TempDir,
    /// The address of the admin server, if a dry run had one.
    taken: std::net::TcpListener,
}

impl Place {
    async fn new(kubeconfig: &str, namespace: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).unwrap();
        Self {
            client: staffetta::connect::client(Some(&file), None).await.unwrap(),
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            folder,
            taken: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// Makes the namespace, and waits for what a cluster puts there.
    async fn found(&self) {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": self.namespace } })).unwrap();
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let accounts = self.api::<ServiceAccount>();
        eventually("pods can be created", async || accounts.get_opt("default").await.unwrap().is_some())
            .await;
    }

    /// A pod and a service with endpoints.
    async fn furnish(&self) {
        self.create::<Pod>(&pod("web", &json!({}))).await;
        let ports = json!([{ "name": "http", "port": 80, "protocol": "TCP" }]);
        self.create::<Service>(
            &json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": ports } }),
        )
        .await;
        let labels = json!({ "kubernetes.io/service-name": "web" });
        self.create::<EndpointSlice>(&json!({ "metadata": { "name": "web-1", "labels": labels }, "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.10.0.5"] }], "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] }))
            .await;
    }

    async fn create<K>(&self, object: &Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object = serde_json::from_value(object.clone()).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn dry_run(&self, arguments: &[&str]) -> Output {
        let (config, kubeconfig) =
            (self.folder.path().join("dry.toml"), self.folder.path().join("kubeconfig"));
        let listen = self.taken.local_addr().unwrap();
        std::fs::write(&config, format!("{SIMULATED}\n[admin]\nlisten = \"{listen}\"\n")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--dry-run", "--config"]).arg(&config).arg("--kubeconfig").arg(&kubeconfig);
        command.args(arguments).output().await.unwrap()
    }

    /// The plan, after it was seen that nothing was written on the way to it.
    async fn dry_run_writes_nothing(&self) -> Value {
        let before = self.versions().await;
        let output = self.dry_run(&["--output", "json"]).await;
        let plan: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        assert_eq!(self.versions().await, before);
        assert_eq!(output.status.code(), Some(0), "{plan:#}");
        let words = text(&self.dry_run(&[]).await.stdout);
        for expected in [
            format!("Pod {}/web\n  vif: would request a VIF: subnets 10.10.0.0/16", self.namespace),
            ", listeners TCP:80 to 10.".to_owned(),
            "  lb: would write: + annotation openstack.org/kuryr-lbaas-state, + annotation staffetta.dev/cluster "
                .to_owned(),
            " Nothing was written.\n".to_owned(),
        ] {
            assert!(words.contains(&expected), "{expected}: {words}");
        }
        assert_eq!(self.versions().await, before);
        plan
    }

    /// The versions of all objects of the test, whose own controllers do not write them either.
    async fn versions(&self) -> BTreeSet<(String, String)> {
        let all = ListParams::default();
        let pods = self.api::<Pod>().list(&all).await.unwrap();
        let services = self.api::<Service>().list(&all).await.unwrap();
        let pods =
            pods.iter().map(|pod| (format!("pod {}", pod.name_any()), pod.resource_version().unwrap()));
        let services = services.iter();
        let services = services
            .map(|found| (format!("service {}", found.name_any()), found.resource_version().unwrap()));
        pods.chain(services).collect()
    }

    /// Runs a controller until it has written all that was planned; then nothing else may have been written.
    async fn a_controller_does_it(&self, plan: &Value) {
        let planned: BTreeSet<_> = self.planned(plan);
        assert!(planned.len() >= 6, "{planned:?}");
        let mut controller =
            Process::start(Path::new(PROGRAM), self.folder.path(), "", &self.kubeconfig).await;
        controller.ready().await;
        eventually("all is written that was planned", async || self.written().await.is_superset(&planned))
            .await;
        assert_eq!(self.written().await, planned);
        // What waits for our finalizers goes while there is somebody to take them off.
        self.api::<Pod>().delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
        self.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
        eventually("all is released", async || self.versions().await.is_empty()).await;
        assert!(controller.terminate().await.success());
        controller.says("all queues are drained").await;
    }

    /// The annotations, finalizers and fields of the status that the plan would add.
    fn planned(&self, plan: &Value) -> BTreeSet<String> {
        let objects = plan["objects"].as_array().unwrap().iter();
        let ours = objects.filter(|object| object["namespace"] == self.namespace.as_str());
        let changes = ours.flat_map(|object| {
            let steps = object["steps"].as_array().unwrap().iter().filter(|step| step["by"] == "kubernetes");
            let changes = steps.flat_map(|step| step["with"].as_array().unwrap());
            changes.map(|change| {
                format!("{} {}", object["kind"].as_str().unwrap(), change["name"].as_str().unwrap())
            })
        });
        changes.collect()
    }

    /// The same of what there is.
    async fn written(&self) -> BTreeSet<String> {
        let pod = serde_json::to_value(self.api::<Pod>().get("web").await.unwrap()).unwrap();
        let service = serde_json::to_value(self.api::<Service>().get("web").await.unwrap()).unwrap();
        let mut written = BTreeSet::new();
        for (kind, object) in [("Pod", &pod), ("Service", &service)] {
            let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
            written.extend(annotations.map(|(key, _)| format!("{kind} annotation {key}")));
            let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
            written.extend(
                finalizers.map(|finalizer| format!("{kind} finalizer {}", finalizer.as_str().unwrap())),
            );
        }
        if !service["status"]["loadBalancer"]["ingress"].is_null() {
            written.insert("Service status.loadBalancer.ingress".to_owned());
        }
        written
    }
}

fn pod(name: &str, metadata: &Value) -> Value {
    let mut pod = json!({ "metadata": metadata, "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pod["metadata"]["name"] = json!(name);
    pod
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
