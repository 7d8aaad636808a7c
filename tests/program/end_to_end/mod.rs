//! End-to-end tests: a Deployment and a Service, applied by kubectl, become annotated pods and a load balancer. They are scaled,
//! rolled out and deleted, and leave nothing behind. The same test runs on the embedded server with the controllers of the
//! devstack, and on a real Kubernetes with its own controllers.

#[cfg(feature = "ec2")]
mod ec2;
mod prefixes;
#[path = "../../support/stack.rs"]
mod stack;
mod webhook;

use std::path::Path;

use stack::{Sight, Stack};
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_cluster::Parts;

use crate::kubectl::Kubectl;

const MANIFEST: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {staffetta.dev/cluster: NODES}
      containers:
      - {name: web, image: 'web:1', ports: [{name: http, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_and_a_service_come_and_go_on_the_embedded_server() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    a_deployment_and_a_service_come_and_go(&kubeconfig, Parts::All).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_deployment_and_a_service_come_and_go_on_a_real_server() {
    let kubeconfig = real_kubeconfig();
    a_deployment_and_a_service_come_and_go(&kubeconfig, Parts::Nodes).await;
}

async fn a_deployment_and_a_service_come_and_go(kubeconfig: &Path, parts: Parts) {
    let namespace = format!("end-to-end-{}", std::process::id());
    let kubectl = Kubectl::find(kubeconfig, &namespace);
    let stack = Stack::start(kubeconfig, &namespace, parts).await;
    let rolled_out = async |image: &str, replicas: usize| {
        kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;
        stack.until(&format!("{replicas} pods of {image}"), |sight| serves(sight, image, replicas)).await;
    };

    kubectl.run(&["create", "namespace", &namespace]).await;
    kubectl.feed(&["apply", "-f", "-"], &MANIFEST.replace("NODES", &namespace)).await;
    rolled_out("web:1", 3).await;
    kubectl.run(&["scale", "deployment/web", "--replicas=5"]).await;
    rolled_out("web:1", 5).await;
    kubectl.run(&["set", "image", "deployment/web", "web=web:2"]).await;
    rolled_out("web:2", 5).await;
    kubectl.run(&["scale", "deployment/web", "--replicas=2"]).await;
    rolled_out("web:2", 2).await;

    kubectl.run(&["delete", "deployment/web", "service/web", "--timeout=120s"]).await;
    stack.until("nothing is left", |sight| *sight == Sight::default()).await;
    kubectl.run(&["delete", "namespace", &namespace, "--timeout=120s"]).await;
    stack.stop().await;
}

/// All pods run with the image, all of them and no other are members of the load balancer, and no port is anybody else's.
fn serves(sight: &Sight, image: &str, replicas: usize) -> bool {
    sight.running.len() == replicas
        && sight.running.values().all(|found| found == image)
        && sight.others == 0
        && sight.running.keys().eq(&sight.members)
        && sight.public
        && sight.elsewhere == [replicas, 1, 1]
}
