//! A release whose pods a real kubelet runs from the image.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Uri;
use kube::config::Kubeconfig;
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use tokio::process::Command;

use crate::PROGRAM;
use crate::container::image;
use crate::helm::Release;
use crate::process::eventually;
use crate::real_node::{NodePort, RealNode};
use crate::site::simulated;

/// The node takes the place of the gateway, because the simulated network has no router.
const PORT: NodePort<'_> = NodePort {
    id: "0a1b2c3d-0000-4000-8000-000000000002",
    mac: "fa:16:3e:ff:00:02",
    address: "10.10.0.1/16",
};

/// Makes the image of the program, and imports it into the container runtime of the node.
async fn import_image(node: &RealNode) {
    let place = tempfile::tempdir().unwrap();
    let (root, archive) = (place.path().join("rootfs"), place.path().join("image.tar"));
    image(&["rootfs".as_ref(), PROGRAM.as_ref(), &root]);
    image(&["archive".as_ref(), &archive, &root]);
    let mut command = Command::new("ctr");
    command.arg("--address").arg(node.folder.join("containerd.sock")).args(["--namespace", "k8s.io"]);
    let output =
        command.args(["images", "import", "--snapshotter", "native"]).arg(archive).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: { name: web, labels: { app: web } }
spec: { selector: { app: web }, ports: [{ port: 8080 }] }
";

/// A pod that gets its annotation before it runs, as its image does not exist.
const FIRST: &str = "
apiVersion: v1
kind: Pod
metadata: { name: first }
spec:
  automountServiceAccountToken: false
  containers: [{ name: first, image: 'example.com/none:1', imagePullPolicy: Never }]
";

/// Returns the annotation with the VIF of the first pod; empty if it has none yet.
async fn vif_of_first(node: &RealNode) -> String {
    const VIF: &str = r"jsonpath={.metadata.annotations.openstack\.org/kuryr-vif}";
    node.kubectl.run(&["get", "pod", "first", "-o", VIF]).await
}

/// Asks the release for its state with the kubectl plug-in, and returns the median of 11 times in which it answers.
fn status(kubeconfig: &Path, namespace: &str) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-staffetta");
    symlink(PROGRAM, &plugin).unwrap();
    let mut times = [(); 11].map(|()| {
        let mut command = std::process::Command::new(&plugin);
        command.args(["status", "--controller-namespace", namespace, "--kubeconfig"]).arg(kubeconfig);
        let began = Instant::now();
        let output = command.output().unwrap();
        let took = began.elapsed();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("lbaasspec"), "{output:?}");
        took
    });
    times.sort();
    times[5]
}

/// Returns the finalizers of the pods and the service, with a space behind each.
async fn finalizers(node: &RealNode) -> String {
    const FINALIZERS: &str = r#"jsonpath={range .items[*].metadata.finalizers[*]}{@}{" "}{end}"#;
    node.kubectl.run(&["get", "pods,services", "-l", "app=web", "-o", FINALIZERS]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes and a real node: devstack/real/test"]
async fn a_release_serves_pods_and_frees_them_when_it_is_removed_on_a_real_node() {
    let server = RealServer::start_whole(&[]).await;
    let node = RealNode::start(&server, &PORT).await;
    import_image(&node).await;
    let release = Release::on(server.kubeconfig(), "pods");

    // The pods of the controller use the network of the node, and the address of the API server that the node uses.
    let cluster = Kubeconfig::read_from(server.kubeconfig()).unwrap().clusters.remove(0).cluster.unwrap();
    let url: Uri = cluster.server.unwrap().parse().unwrap();
    let mut values = simulated(&["vif", "lb", "lbaasspec"]);
    values["hostNetwork"] = json!(true);
    values["replicaCount"] = json!(1);
    values["extraEnv"] = json!([
        { "name": "KUBERNETES_SERVICE_HOST", "value": Ipv4Addr::LOCALHOST },
        { "name": "KUBERNETES_SERVICE_PORT", "value": url.port().unwrap().as_str() },
    ]);
    let began = Instant::now();
    release.install(&values, &["--wait", "--timeout", "2m"]).await.unwrap();
    node.kubectl.apply(FIRST).await;
    eventually("the first pod is annotated", async || !vif_of_first(&node).await.is_empty()).await;
    println!("from `helm install` to the first annotated pod: {:?}", began.elapsed());
    let took = status(server.kubeconfig(), &release.namespace);
    println!("`kubectl staffetta status`, median of 11: {took:?}");

    node.kubectl.run(&["delete", "pod", "first", "--grace-period=0", "--force"]).await;

    // Its pods have the VIFs that the release gave them.
    node.deploy(2).await;
    node.assert_all_reach_all().await;
    node.kubectl.apply(SERVICE).await;
    eventually("all have finalizers", async || {
        finalizers(&node).await == "staffetta.dev/vif staffetta.dev/vif staffetta.dev/lb "
    })
    .await;

    release.helm(&["uninstall", "staffetta", "--timeout", "2m"]).await.unwrap();
    let printed =
        node.kubectl.run(&["logs", "job/staffetta-uninstall", "--namespace", &release.namespace]).await;
    for row in ["Pod ", "Service "] {
        let is_freed = |line: &str| line.starts_with(row) && line.contains("is removed");
        assert!(printed.lines().any(is_freed), "{printed}");
    }
    assert_eq!(finalizers(&node).await, "");
    node.scale_down().await;
}
