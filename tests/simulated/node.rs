//! A real kubelet and a real container runtime, whose pods get interfaces for the VIFs that a controller has given them.

use std::path::Path;

use kube::config::Kubeconfig;
use staffetta_apiserver::testing::RealServer;
use tokio::process::Command;

use crate::cni_node::HostPortChains;
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::real_node::{NodePort, RealNode};
use crate::{PROGRAM, network, options};

/// The node takes the place of the gateway, because the simulated network has no router.
const PORT: NodePort<'_> = NodePort {
    id: "0a1b2c3d-0000-4000-8000-000000000001",
    mac: "fa:16:3e:ff:00:01",
    address: "10.10.0.1/16",
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes and a real node: devstack/real/test"]
async fn pods_of_a_real_kubelet_are_ready_reach_each_other_and_leave_nothing_on_a_real_node() {
    let (_alone, _chains) = (NODE.lock().await, HostPortChains);
    let server = RealServer::start_whole(&[]).await;
    let (network, ports) = network();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let configuration = options(network.url(), "enabled = false\n");
    let mut controller = Process::start(Path::new(PROGRAM), folder.path(), &configuration, &kubeconfig).await;
    controller.ready().await;
    let mut node = RealNode::start(&server, &PORT).await;

    node.deploy(3).await;
    node.assert_all_reach_all().await;
    let mut shown: Vec<_> = node.pods().await.into_iter().map(|(_, address)| address).collect();
    let mut given: Vec<_> = ports
        .ports()
        .await
        .unwrap()
        .iter()
        .flat_map(|port| port.vif.ips())
        .map(|ip| ip.to_string())
        .collect();
    shown.sort();
    given.sort();
    assert_eq!(shown, given);

    a_user_with_the_role_of_operators_reaches_the_pod_that_the_lease_names(&server, &node).await;

    // Pods keep their network without the daemon, and further ones get theirs from the next daemon.
    node.start_daemon().await;
    node.deploy(5).await;
    node.assert_all_reach_all().await;
    // The plugins after ours, in the configuration that the daemon has written.
    node.deploy_with_host_port(18_098).await;
    let page =
        Command::new("curl").args(["--silent", "--noproxy", "*", "http://10.10.0.1:18098/"]).output().await;
    assert_eq!(String::from_utf8(page.unwrap().stdout).unwrap(), "hello\n");
    let queues = Command::new("tc").args(["qdisc", "show"]).output().await.unwrap();
    let limited = |line: &&str| line.contains("qdisc tbf") && line.contains("rate 60Mbit");
    let queues = String::from_utf8(queues.stdout).unwrap();
    assert_eq!(queues.lines().filter(limited).count(), 1, "{queues}");
    node.scale_down().await;
    crate::eventually("all ports are released", async || ports.ports().await.unwrap().is_empty()).await;
    drop(node);
    assert!(controller.terminate().await.success());
}

/// The lock that a test holds while it has a node: two would have one name, and one address of the node's port.
static NODE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A pod that shows the VIF of another one, as its creator wrote it. No controller runs meanwhile.
const FORGER: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: forger
  finalizers: [staffetta.dev/vif]
  annotations: { openstack.org/kuryr-vif: 'VIF' }
spec:
  nodeName: localhost
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - { name: web, image: 'docker.io/local/busybox:1', imagePullPolicy: Never, command: [busybox, sleep, '600'] }
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes and a real node: devstack/real/test"]
async fn a_forged_vif_and_a_lost_state_folder_cost_no_pod_its_network_on_a_real_node() {
    let _alone = NODE.lock().await;
    let server = RealServer::start_whole(&[]).await;
    let (network, ports) = network();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let configuration = options(network.url(), "enabled = false\n");
    let start = async || {
        let controller = Process::start(Path::new(PROGRAM), folder.path(), &configuration, &kubeconfig).await;
        controller.ready().await;
        controller
    };
    let mut controller = start().await;
    let mut node = RealNode::start(&server, &PORT).await;
    node.deploy(2).await;
    node.assert_all_reach_all().await;
    assert!(controller.terminate().await.success());

    let shown = "jsonpath={.items[0].metadata.annotations.openstack\\.org/kuryr-vif}";
    let vif = node.kubectl.run(&["get", "pods", "-o", shown]).await;
    node.kubectl.run(&["create", "namespace", "tenant"]).await;
    let tenant = Kubectl::find(server.kubeconfig(), "tenant");
    tenant.apply(&FORGER.replace("VIF", &vif)).await;
    let is_refused = async |because: &str| {
        crate::eventually(because, async || {
            tenant.run(&["get", "events", "-o", "json"]).await.contains(because)
        })
        .await;
    };
    is_refused("is bound to another pod of this node").await;
    node.assert_all_reach_all().await;
    // Nothing but the kernel and Open vSwitch knows now who has the VIF.
    node.lose_records().await;
    is_refused("is in use by the node or by another container").await;
    node.assert_all_reach_all().await;

    let without = r#"{"metadata":{"finalizers":null}}"#;
    tenant.run(&["patch", "pod", "forger", "--type=merge", "-p", without]).await;
    tenant.run(&["delete", "pod", "forger", "--timeout=60s"]).await;
    node.assert_all_reach_all().await;
    let mut controller = start().await;
    node.scale_down().await;
    crate::eventually("all ports are released", async || ports.ports().await.unwrap().is_empty()).await;
    drop(node);
    assert!(controller.terminate().await.success());
}

/// A pod of the node stands for the leader: it serves the path of the log level at its port 8080.
async fn a_user_with_the_role_of_operators_reaches_the_pod_that_the_lease_names(
    server: &RealServer,
    node: &RealNode,
) {
    let (leader, _) = node.pods().await.remove(0);
    let lease = LEASE.replace("LEADER", &leader);
    node.kubectl.apply(&lease).await;
    node.kubectl.run(&["create", "serviceaccount", "operator"]).await;
    let token = node.kubectl.run(&["create", "token", "operator"]).await;
    let mut own = serde_json::json!(Kubeconfig::read_from(server.kubeconfig()).unwrap());
    own["users"][0]["user"] = serde_json::json!({ "token": token.trim() });
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, program) = (folder.path().join("config"), folder.path().join("kubectl-staffetta"));
    std::fs::write(&kubeconfig, own.to_string()).unwrap();
    std::os::unix::fs::symlink(PROGRAM, &program).unwrap();
    let log_level = async || {
        let way = ["--controller-namespace", "default", "--admin-port", "8080", "--kubeconfig"];
        let mut command = Command::new(&program);
        let output = command.arg("log-level").args(way).arg(&kubeconfig).output().await.unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, error] = log_level().await;
    assert!(error.contains("you may not read the Lease in the namespace `default`"), "{error}");
    node.kubectl.apply(ROLE).await;
    let subject = ["--clusterrole=staffetta-operator", "--serviceaccount=default:operator"];
    node.kubectl.run(&[&["create", "rolebinding", "operator"], &subject[..]].concat()).await;
    crate::eventually("the user has the rights", async || {
        let [said, error] = log_level().await;
        assert!(said == "info\n" || error.contains("you may not "), "{said}{error}");
        said == "info\n"
    })
    .await;
}

const LEASE: &str = "
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: { name: staffetta }
spec: { holderIdentity: LEADER_0000000000000abc, leaseDurationSeconds: 15 }
";

/// The role of operators in the chart.
const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: staffetta-operator }
rules:
- { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get] }
- { apiGroups: [''], resources: [pods], verbs: [get, list] }
- { apiGroups: [''], resources: [pods/portforward], verbs: [get, create] }
";
