//! Devices as nodes of a real cluster: its scheduler, its node controller and kubectl treat them like other nodes.

use std::path::Path;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Api;
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_iosxe_device::{Options, Reachability};
use tokio::sync::Mutex;

use super::world::World;
use crate::kubectl::Kubectl;
use crate::process::eventually;

/// A controller holds all nodes of devices for its own: one at a time.
static CLUSTER: Mutex<()> = Mutex::const_new(());

pub(crate) const DEFINITION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/etc/deploy/chart/files/ciscodevices.yaml");

/// NODE stands for the name of a node.
const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      tolerations: [{key: virtual-kubelet.io/provider, operator: Exists}]
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 1
      containers:
      - {name: web, image: 'flash:/web.tar', imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 100m, memory: 64Mi}}}
";

/// A namespace of a test's own, and devices beside it.
async fn cluster(name: &str, change: impl Fn(&mut Options)) -> (Kubectl, World) {
    let kubeconfig = real_kubeconfig();
    let namespace = format!("iosxe-{name}-{}", std::process::id());
    let kubectl = Kubectl::find(&kubeconfig, &namespace);
    kubectl.run(&["create", "namespace", &namespace]).await;
    kubectl.exists("serviceaccount/default").await;
    let world = world(&kubeconfig, &namespace, change).await;
    (kubectl, world)
}

async fn world(kubeconfig: &Path, namespace: &str, change: impl Fn(&mut Options)) -> World {
    World::on(kubeconfig, namespace, 1, |options| {
        options.name = format!("{namespace}-edge");
        change(options);
    })
    .await
}

/// Takes away what a test leaves behind: its namespace, its node.
async fn remove(kubectl: &Kubectl, node: &str) {
    let namespace = node.strip_suffix("-edge").unwrap();
    kubectl.run(&["delete", "namespace", namespace, "--wait=false"]).await;
    kubectl.run(&["delete", "node", node, "--ignore-not-found", "--timeout=60s"]).await;
}

/// The pods of the deployment.
async fn pods(world: &World) -> Vec<Pod> {
    world.pods.list(&kube::api::ListParams::default().labels("app=web")).await.unwrap().items
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_scheduler_puts_pods_on_a_device_and_who_wants_their_logs_learns_why_not_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let (kubectl, world) = cluster("pods", |_| ()).await;
    let node = world.device().name().to_owned();
    let mut controller = world.controller().await;
    kubectl.exists(&format!("node/{node}")).await;
    kubectl.run(&["wait", "--for=condition=Ready", &format!("node/{node}"), "--timeout=60s"]).await;
    kubectl.apply(&DEPLOYMENT.replace("NODE", &node)).await;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;
    let running = pods(&world).await;
    assert_eq!(running.iter().filter(|pod| is_ready(pod)).count(), 2, "{running:#?}");
    assert_eq!(world.device().apps().len(), 2);

    let leases: Api<Lease> = Api::namespaced(world.nodes.clone().into_client(), "kube-node-lease");
    let lease = leases.get(&node).await.unwrap();
    let renewed = lease.spec.unwrap().renew_time;
    eventually("the lease is renewed", async || {
        leases.get(&node).await.unwrap().spec.unwrap().renew_time != renewed
    })
    .await;

    let name = running[0].metadata.name.clone().unwrap();
    for (arguments, what) in [
        (vec!["logs", &name], "logs is not supported by this device"),
        (vec!["exec", &name, "--", "true"], "exec is not supported by this device"),
        (vec!["attach", &name], "attach is not supported by this device"),
        (vec!["port-forward", &name, ":80"], "port-forward is not supported by this device"),
    ] {
        let said = kubectl.fails(&arguments).await;
        assert!(said.contains(what), "kubectl {}: {said}", arguments.join(" "));
    }
    assert!(pods(&world).await.iter().all(is_ready), "nobody was disturbed");

    // One that does not ask for a device gets none.
    let intolerant = DEPLOYMENT
        .replace("NODE", &node)
        .replace("name: web}\nspec:\n  replicas", "name: other}\nspec:\n  replicas");
    let intolerant = intolerant
        .replace("tolerations: [{key: virtual-kubelet.io/provider, operator: Exists}]", "tolerations: []");
    kubectl.apply(&intolerant.replace("app: web", "app: other")).await;
    eventually("the scheduler says why", async || {
        let events = kubectl.run(&["get", "events", "--output", "jsonpath={.items[*].message}"]).await;
        events.contains("untolerated taint")
    })
    .await;

    kubectl.run(&["delete", "deployment", "web", "other", "--timeout=60s"]).await;
    eventually("the pods are gone", async || pods(&world).await.is_empty()).await;
    world.assert_clean();
    world.assert_done_once();
    assert!(controller.terminate().await.success());
    remove(&kubectl, &node).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_client_reads_of_a_device_what_its_cluster_role_permits_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let (kubectl, world) = cluster("metrics", |_| ()).await;
    let node = world.device().name().to_owned();
    let _controller = world.controller().await;
    kubectl.exists(&format!("node/{node}")).await;
    let port = "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}";
    let port = kubectl.run(&["get", "node", &node, "--output", port]).await;
    kubectl.apply(&DEPLOYMENT.replace("NODE", &node)).await;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;
    let server = format!("--server=https://127.0.0.1:{port}");
    let call = [&server, "--kubeconfig=/dev/null", "--insecure-skip-tls-verify"];
    let with = |credentials: &[String], path: &str| -> Vec<String> {
        let words = call.iter().copied().chain(["get", "--raw", path]).map(str::to_owned);
        words.chain(credentials.iter().cloned()).collect()
    };
    let ask = async |credentials: &[String], path: &str| {
        let words = with(credentials, path);
        kubectl.attempt(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };

    // A token, as metrics-server has one.
    kubectl.run(&["create", "serviceaccount", "metrics"]).await;
    let token = [format!("--token={}", kubectl.run(&["create", "token", "metrics"]).await)];
    let namespace = node.strip_suffix("-edge").unwrap();
    let role = ["create", "clusterrole", &node, "--verb=get", "--resource=nodes/metrics"];
    kubectl.run(&role).await;
    let account = format!("--serviceaccount={namespace}:metrics");
    kubectl.run(&["create", "clusterrolebinding", &node, &format!("--clusterrole={node}"), &account]).await;
    eventually("the binding counts", async || {
        let answer = ask(&token, "/metrics/resource").await.unwrap_or_default();
        answer.contains(&format!(
            "container_memory_working_set_bytes{{container=\"web\",namespace=\"{namespace}\""
        ))
    })
    .await;
    let refused = ask(&token, "/pods").await.unwrap_err();
    assert!(refused.contains("resource=nodes, subresource(s)=[pods proxy]"), "{refused}");
    let unknown = ask(&["--token=invented".to_owned()], "/pods").await.unwrap_err();
    assert!(unknown.contains("the server has asked for the client to provide credentials"), "{unknown}");

    // Certificates: the API server's own, and one of a user without these rights.
    let folder = real_kubeconfig().with_file_name("pki");
    let certificate = |name: &str| {
        let file = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
        [format!("--client-certificate={}", file("crt")), format!("--client-key={}", file("key"))]
    };
    assert!(ask(&certificate("kubelet-client"), "/pods").await.unwrap().contains("\"PodList\""));
    let refused = ask(&certificate("scheduler"), "/pods").await.unwrap_err();
    assert!(refused.contains("Forbidden (user=system:kube-scheduler, verb=get"), "{refused}");

    kubectl.run(&["delete", "clusterrole,clusterrolebinding", &node]).await;
    kubectl.run(&["delete", "deployment", "web", "--timeout=60s"]).await;
    eventually("the pods are gone", async || pods(&world).await.is_empty()).await;
    remove(&kubectl, &node).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_cluster_leaves_the_pods_of_a_device_running_that_cannot_be_reached_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let (kubectl, world) = cluster("outage", |_| ()).await;
    let node = world.device().name().to_owned();
    let _controller = world.controller().await;
    kubectl.apply(&DEPLOYMENT.replace("NODE", &node)).await;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;
    let before = pods(&world).await;

    world.device().reach(Reachability::Refuses);
    world.until_ready(&node, false).await;
    // It evicts nobody where it holds all nodes of a zone for lost, so that there may be no taint that does.
    eventually("the node controller has seen it", async || {
        let node = world.nodes.get(&node).await.unwrap();
        let gone = |taint: &Taint| taint.key == "node.kubernetes.io/not-ready";
        taints(&node).iter().any(gone)
    })
    .await;
    assert!(pods(&world).await.iter().all(|pod| phase(pod) == "Running"));

    world.device().reach(Reachability::Up);
    world.until_ready(&node, true).await;
    eventually("the taint is gone", async || {
        let node = world.nodes.get(&node).await.unwrap();
        let keys: Vec<_> = taints(&node).iter().map(|taint| taint.key.as_str()).collect();
        keys == ["virtual-kubelet.io/provider"]
    })
    .await;
    eventually("the pods are ready", async || pods(&world).await.iter().all(is_ready)).await;
    let identity = |pod: &Pod| pod.metadata.uid.clone();
    let after = pods(&world).await;
    assert!(after.iter().all(|pod| phase(pod) == "Running"));
    let (mut before, mut after): (Vec<_>, Vec<_>) =
        (before.iter().map(identity).collect(), after.iter().map(identity).collect());
    before.sort();
    after.sort();
    assert_eq!(before, after, "they are the same pods");
    world.assert_done_once();
    kubectl.run(&["delete", "deployment", "web", "--timeout=60s"]).await;
    eventually("the pods are gone", async || pods(&world).await.is_empty()).await;
    remove(&kubectl, &node).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_device_comes_with_its_account_and_goes_with_its_node_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let (kubectl, mut world) = cluster("devices", |_| ()).await;
    kubectl.run(&["apply", "-f", DEFINITION]).await;
    kubectl.run(&["wait", "--for=condition=Established", "crd/ciscodevices.cisco.vk", "--timeout=60s"]).await;
    let name = world.device().name().to_owned();
    let (address, port) = (world.device().address().ip(), world.device().address().port());
    world.described.clear();
    world.options = format!("allowed_addresses = [\"{address}\"]\nallowed_label_prefixes = [\"rack\"]\n");
    let _controller = world.controller().await;
    let resource = serde_json::json!({
        "apiVersion": "cisco.vk/v1alpha1", "kind": "CiscoDevice", "metadata": { "name": name },
        "spec": { "driver": "XE", "address": address, "port": port, "credentialSecretRef": { "name": name },
            "tls": { "enabled": false }, "xe": {} },
    });
    kubectl.apply(&resource.to_string()).await;
    let device = format!("ciscodevice/{name}");
    let wait = async |what: &str, of: &str| {
        kubectl.run(&["wait", &format!("--for={what}"), of, "--timeout=90s"]).await;
    };
    wait("jsonpath={.status.phase}=Error", &device).await;
    let why = kubectl.run(&["get", &device, "--output", "jsonpath={.status.conditions[0].message}"]).await;
    assert!(why.contains("there is no Secret"), "{why}");
    let account = ["--from-literal=username=admin", "--from-literal=password=cisco-123"];
    // The namespace of the controller is that of its kubeconfig.
    let admin = Kubectl::find(&real_kubeconfig(), "default");
    admin.run(&[&["create", "secret", "generic", &name][..], &account].concat()).await;
    admin.run(&["label", "secret", &name, "staffetta.dev/device-credentials=true"]).await;
    // A device without its account is tried again after half a minute.
    wait("condition=Ready", &device).await;
    wait("condition=Ready", &format!("node/{name}")).await;
    let change = r#"{"spec":{"labels":{"rack":"9"},"maxPods":3}}"#;
    kubectl.run(&["patch", &device, "--type=merge", "--patch", change]).await;
    wait("jsonpath={.metadata.labels.rack}=9", &format!("node/{name}")).await;
    wait("jsonpath={.status.allocatable.pods}=3", &format!("node/{name}")).await;
    kubectl.apply(&DEPLOYMENT.replace("NODE", &name)).await;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;

    kubectl.run(&["delete", &device, "--timeout=90s"]).await;
    wait("delete", &format!("node/{name}")).await;
    admin.run(&["delete", "secret", &name]).await;
    world.assert_clean();
    remove(&kubectl, &name).await;
}
