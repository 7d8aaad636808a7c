//! The chart on a real API server: installed, upgraded and removed by Helm. No kubelet runs its pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};
use staffetta_apiserver::testing::{program, real_kubeconfig};
use tokio::process::Command;

use crate::check::{check_pre, finding};
use crate::cluster::CLUSTER;
use crate::kubectl::Kubectl;
use crate::process::{Process, eventually};
use crate::rendered::{PRESETS, yaml};
use crate::site::simulated;
use crate::{PROGRAM, folder};

/// A definition of the kind without a field of today's, and an object of it. NAME stands for a name that nobody else has.
const OBJECTS: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default, finalizers: [staffetta.dev/vif]}
spec: {automountServiceAccountToken: false, containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: default, finalizers: [staffetta.dev/lb]}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {staffetta.dev/handler: app_hosting, staffetta.dev/cluster: CLUSTER}}
---
apiVersion: cisco.vk/v1alpha1
kind: CiscoDevice
metadata: {name: NAME, finalizers: [cisco.vk/device-cleanup]}
spec: {driver: FAKE, address: 192.0.2.1, maxPods: 3}
";

/// A release with a namespace of its own.
pub(crate) struct Release {
    kubeconfig: PathBuf,
    pub(crate) namespace: String,
    place: tempfile::TempDir,
}

impl Release {
    fn new(name: &str) -> Self {
        Self::on(&real_kubeconfig(), name)
    }

    /// A release on the API server of this kubeconfig.
    pub(crate) fn on(kubeconfig: &Path, name: &str) -> Self {
        let namespace = format!("helm-{name}-{}", std::process::id());
        Self { kubeconfig: kubeconfig.to_owned(), namespace, place: tempfile::tempdir().unwrap() }
    }

    /// Runs Helm, and returns what it printed, or its error output if it failed.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program("helm"))
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", self.place.path())
            .output()
            .await
            .unwrap();
        let [printed, said] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        if output.status.success() { Ok(printed) } else { Err(said) }
    }

    /// Installs or upgrades the release with these values.
    pub(crate) async fn install(&self, values: &Value, arguments: &[&str]) -> Result<String, String> {
        let (file, chart) = (self.place.path().join("values.yaml"), folder().join("chart"));
        fs::write(&file, values.to_string()).unwrap();
        let install = ["upgrade", "--install", "staffetta", chart.to_str().unwrap(), "--create-namespace"];
        self.helm(&[&install[..], &["--values", file.to_str().unwrap()], arguments].concat()).await
    }

    /// The objects that the release has at this moment of its life: `manifest` or `hooks`.
    async fn objects(&self, what: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(&self.helm(&["get", what, "staffetta"]).await.unwrap()).unwrap()
    }
}

/// The definition of devices without the field `maxPods`, as an older version had it.
fn older_definition() -> String {
    let text = fs::read_to_string(folder().join("chart/files/ciscodevices.yaml")).unwrap();
    let kept = text.lines().filter(|line| !line.contains("maxPods"));
    let older = kept.collect::<Vec<_>>().join("\n");
    assert!(older.len() < text.len() - 10);
    older
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn helm_installs_over_an_older_definition_refuses_a_second_release_and_frees_all_objects_on_a_real_server()
 {
    let _exclusive = CLUSTER.lock().await;
    let (first, second) = (Release::new("first"), Release::new("second"));
    let admin = Kubectl::find(&first.kubeconfig, "");
    admin.apply(&older_definition()).await;
    let mut values = simulated(&["vif", "lb", "lbaasspec"]);
    values["config"]["kubernetes"]["enabled_handlers"] = json!(["vif", "lb", "lbaasspec", "app_hosting"]);
    values["config"]["kubernetes"]["app_hosting_driver"] = json!("FAKE");

    let (code, report) = check_pre(&first.kubeconfig, &[]).await;
    let existing = finding(&report, "WARNING", "the kind CiscoDevice can be installed: it exists already");
    assert!(code == 0 && existing.contains("--take-ownership"), "{report}");
    let typo = first.install(&values, &["--set", "replica=3"]).await.unwrap_err();
    assert!(typo.contains("additional properties 'replica' not allowed"), "{typo}");
    let foreign = first.install(&values, &[]).await.unwrap_err();
    assert!(
        foreign.contains("\"ciscodevices.cisco.vk\"") && foreign.contains("invalid ownership"),
        "{foreign}"
    );
    let notes = first.install(&values, &["--take-ownership"]).await.unwrap();
    for driver in ["pod_vif_driver: memory", "app_hosting_driver: FAKE"] {
        assert!(
            notes.contains(&format!("A DRIVER IS SIMULATED: `config.kubernetes.{driver}`")),
            "{driver}: {notes}"
        );
    }
    let (code, report) = check_pre(&first.kubeconfig, &[]).await;
    let other = finding(&report, "WARNING", "no other release is installed");
    assert!(code == 0 && other.contains(&format!("the release {}/staffetta", first.namespace)), "{report}");
    finding(
        &report,
        "ok",
        "the kind CiscoDevice can be installed: it exists, with the fields of this version",
    );
    let client = staffetta::connect::client(Some(&first.kubeconfig), None).await.unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(client);
    let definition = json!(definitions.get("ciscodevices.cisco.vk").await.unwrap());
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(schema["spec"]["properties"]["maxPods"]["type"], "integer", "it was upgraded");

    let refused = second.install(&values, &[]).await.unwrap_err();
    let reason = format!(
        "staffetta is installed in this cluster already, as the release {}/staffetta",
        first.namespace
    );
    assert!(refused.contains(&reason), "{refused}");
    values["replicaCount"] = json!(3);
    first.install(&values, &[]).await.unwrap();

    let name = &first.namespace;
    eventually("the pod is accepted", async || {
        admin.attempt(&["get", "serviceaccount/default", "-n", "default"]).await.is_ok()
    })
    .await;
    // The policy lets administrators write finalizers.
    let cluster = admin.run(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await;
    admin.apply(&OBJECTS.replace("NAME", name).replace("CLUSTER", &cluster.replace('-', ""))).await;
    // What disabled handlers left is freed too.
    values["config"]["kubernetes"]["enabled_handlers"] = json!(["vif"]);
    first.install(&values, &[]).await.unwrap();
    assert_eq!(admin.run(&["get", "ciscodevice", name, "-o", "jsonpath={.spec.maxPods}"]).await, "3");
    let printed = run_hook(&first, &admin).await;
    for row in ["Pod ", "Service ", "CiscoDevice ", "Node "] {
        assert!(printed.lines().any(|line| line.starts_with(row) && line.contains(name)), "{row}: {printed}");
    }
    let scale = ["get", "deployment/staffetta", "-n", name, "-o", "jsonpath={.spec.replicas}"];
    assert_eq!(admin.run(&scale).await, "0");

    first.helm(&["uninstall", "staffetta", "--no-hooks"]).await.unwrap();
    // Nothing holds them back, and the definition was kept.
    let (pod, service) = (format!("pod/{name}"), format!("service/{name}"));
    for object in [&pod, &service, &format!("ciscodevice/{name}")] {
        admin.run(&["delete", "-n", "default", object, "--timeout=60s", "--grace-period=0", "--force"]).await;
    }
    admin.run(&["delete", "crd", "ciscodevices.cisco.vk", "--timeout=60s"]).await;
    for release in [&first, &second] {
        let arguments = ["delete", "namespace", &release.namespace, "--wait=false", "--ignore-not-found"];
        admin.run(&arguments).await;
    }
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn each_file_of_sample_values_can_be_installed_in_an_empty_cluster_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let release = Release::new("sample");
    let admin = Kubectl::find(&release.kubeconfig, "");
    for preset in PRESETS {
        let mut values = yaml(&format!("values/{preset}.yaml"));
        if preset == "openstack" {
            let refused = release.install(&values, &[]).await.unwrap_err();
            assert!(refused.contains("is still the placeholder"), "{refused}");
            for id in values["config"]["neutron_defaults"].as_object_mut().unwrap().values_mut() {
                *id = if id.is_array() { json!(["an-id"]) } else { json!("an-id") };
            }
        }
        release.install(&values, &[]).await.unwrap_or_else(|error| panic!("{preset}: {error}"));
        release.helm(&["uninstall", "staffetta", "--no-hooks"]).await.unwrap();
    }
    let mut values = yaml("values/iosxe.yaml");
    values["config"]["app_hosting"]["secret_namespaces"] = json!(["nowhere"]);
    let refused = release.install(&values, &[]).await.unwrap_err();
    assert!(refused.contains("there is no namespace nowhere. Create it first"), "{refused}");
    admin.run(&["delete", "crd", "ciscodevices.cisco.vk", "--timeout=60s"]).await;
    admin.run(&["delete", "namespace", &release.namespace, "--wait=false"]).await;
}

/// Does what the pod of the hook does: its command, with the token of its account and the rights of its Role. Returns what it printed.
async fn run_hook(release: &Release, admin: &Kubectl) -> String {
    let place = release.place.path();
    let hooks = release.objects("hooks").await;
    for hook in hooks.iter().filter(|hook| hook["kind"] != "Job") {
        admin.apply(&hook.to_string()).await;
    }
    let job = hooks.iter().find(|hook| hook["kind"] == "Job").unwrap();
    let pod = &job["spec"]["template"]["spec"];
    let (configuration, own) = as_pod(release, admin, pod).await;
    let kubeconfig = place.join("kubeconfig");
    fs::write(&kubeconfig, own).unwrap();
    fs::write(place.join("staffetta.toml"), configuration).unwrap();
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let output = Command::new(PROGRAM)
        .args(arguments)
        .arg("--config")
        .arg(place.join("staffetta.toml"))
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The configuration that the kubelet would give a pod of the release, and a kubeconfig with the token of the pod's account.
async fn as_pod(release: &Release, admin: &Kubectl, pod: &Value) -> (String, String) {
    let account = pod["serviceAccountName"].as_str().unwrap();
    let token = admin.run(&["create", "token", account, "--namespace", &release.namespace]).await;
    let objects = release.objects("manifest").await;
    let map = &pod["volumes"][0]["configMap"]["name"];
    let of_name = |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == *map;
    let map = objects.iter().find(of_name).unwrap();
    let configuration = map["data"]["staffetta.toml"].as_str().unwrap().to_owned();
    (configuration, with_token(&release.kubeconfig, &release.namespace, token.trim()))
}

/// A pod on a node of its own. NAME stands for a name that nobody else has.
const FIRST: &str = r"
apiVersion: v1
kind: Node
metadata: {name: NAME}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec: {nodeName: NAME, automountServiceAccountToken: false, containers: [{name: web, image: 'web:1'}]}
";

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn from_the_installation_on_a_pod_gets_its_annotation_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let release = Release::new("first-pod");
    let admin = Kubectl::find(&release.kubeconfig, "");
    eventually("the pod is accepted", async || {
        admin.attempt(&["get", "serviceaccount/default", "-n", "default"]).await.is_ok()
    })
    .await;
    let began = Instant::now();
    release.install(&simulated(&["vif"]), &[]).await.unwrap();
    let installed = began.elapsed();
    // No kubelet runs here: the program is a process with what the pod of the Deployment would have.
    let objects = release.objects("manifest").await;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let (configuration, own) = as_pod(&release, &admin, &deployment["spec"]["template"]["spec"]).await;
    let mut process = Process::start(PROGRAM.as_ref(), release.place.path(), &configuration, &own).await;
    let name = &release.namespace;
    admin.apply(&FIRST.replace("NAME", name)).await;
    let annotation = [
        "get",
        "pod",
        name,
        "-n",
        "default",
        "-o",
        r"jsonpath={.metadata.annotations.openstack\.org/kuryr-vif}",
    ];
    eventually("the pod has its annotation", async || !admin.run(&annotation).await.is_empty()).await;
    println!(
        "from `helm install` to the first annotated pod: {:?}, {installed:?} of it Helm",
        began.elapsed()
    );

    let pod = ["delete", "pod", name, "-n", "default", "--timeout=60s", "--grace-period=0", "--force"];
    admin.run(&pod).await;
    assert!(process.terminate().await.success());
    admin.run(&["delete", "node", name]).await;
    release.helm(&["uninstall", "staffetta", "--no-hooks"]).await.unwrap();
    admin.run(&["delete", "namespace", name, "--wait=false"]).await;
}

/// The kubeconfig with the token of an account in `namespace` in place of its user.
fn with_token(kubeconfig: &Path, namespace: &str, token: &str) -> String {
    let mut own = json!(kube::config::Kubeconfig::read_from(kubeconfig).unwrap());
    own["users"][0]["user"] = json!({ "token": token });
    own["contexts"][0]["context"]["namespace"] = json!(namespace);
    own.to_string()
}
