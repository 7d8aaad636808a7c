//! A real kubelet and a real container runtime, whose pods get interfaces for the VIFs that a controller has given them.

use std::path::Path;

use staffetta_apiserver::testing::RealServer;
use tokio::process::Command;

use crate::cni_node::HostPortChains;
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
    let _chains = HostPortChains;
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
