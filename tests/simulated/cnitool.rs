//! The commands of the CNI specification, from a runtime through the plugin and the daemon to the kernel, with plugins after ours.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::cni_node::{CniNode, HostPortChains, iproute, run};
use crate::process::eventually;

/// Runs GC, with no attachment that is valid. cnitool sends no list of them, which the plugin refuses: it would unbind every pod.
async fn collect(node: &CniNode) {
    let configuration = json!({ "cniVersion": "1.1.0", "name": "staffetta", "type": "staffetta-cni",
        "daemon": node.socket(), "cni.dev/valid-attachments": [] });
    let mut child = Command::new(CniNode::plugin())
        .env("CNI_COMMAND", "GC")
        .env("CNI_PATH", "/usr/lib/cni")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
#[ignore = "needs network namespaces: devstack/real/test"]
async fn a_runtime_adds_checks_collects_and_deletes_through_the_plugin_and_the_daemon() {
    // `tuning` works with the result of the plugin before it.
    let tuning = json!({ "type": "tuning", "sysctl": { "net.ipv4.conf.eth0.arp_announce": "2" } });
    let (node, none) = (CniNode::new(1).await, json!({}));
    node.write_chain(tuning);
    let cnitool = async |command, pod| node.cnitool(command, pod, &none).await;
    let refused = cnitool("add", "one").await.unwrap_err();
    assert!(refused.contains("the daemon"), "{refused}");
    let mut daemon = node.daemon("").await;
    cnitool("status", "one").await.unwrap();

    for (name, address) in [("one", node.address(11)), ("two", node.address(12))] {
        let result: Value = serde_json::from_str(&cnitool("add", name).await.unwrap()).unwrap();
        assert_eq!(result["ips"][0]["address"], format!("{address}/24"), "{result}");
        assert_eq!(node.addresses(name).await[0]["local"], address);
        cnitool("check", name).await.unwrap();
    }
    let setting = run(node.command_in("one", "cat").arg("/proc/sys/net/ipv4/conf/eth0/arp_announce")).await;
    assert_eq!(setting.trim(), "2");
    iproute(&format!("ip -n {}-one addr del {}/24 dev eth0", node.bridge, node.address(11))).await;
    let wrong = cnitool("check", "one").await.unwrap_err();
    assert!(wrong.contains(&node.address(11)), "{wrong}");

    cnitool("del", "one").await.unwrap();
    cnitool("del", "one").await.unwrap();
    assert!(node.addresses("one").await.is_empty() && !node.addresses("two").await.is_empty());
    collect(&node).await;
    assert!(node.addresses("two").await.is_empty());
    cnitool("del", "two").await.unwrap();
    assert_eq!(std::fs::read_dir(node.path().join("records")).unwrap().count(), 0);
    assert!(daemon.terminate().await.success());
}

/// Reads what the server at `address` sends, in a process of the node. `None` if there is no connection.
async fn fetch(address: &str, port: u16) -> Option<String> {
    let program = format!(
        "import socket; c=socket.create_connection(('{address}', {port}), 5); print(c.makefile().read(), end='')"
    );
    let output = Command::new("python3").args(["-c", &program]).output().await.unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// The bytes that have passed the token bucket filter of an interface; `None` if it has no such filter.
async fn shaped(interface: &str) -> Option<u64> {
    let queues: Value =
        serde_json::from_str(&iproute(&format!("tc -s -j qdisc show dev {interface}")).await).unwrap();
    let filter = queues.as_array().unwrap().iter().find(|queue| queue["kind"] == "tbf")?;
    filter["bytes"].as_u64()
}

/// The names of the devices by which the plugin `bandwidth` limits what pods send.
async fn intermediate_devices() -> Vec<String> {
    let links: Value = serde_json::from_str(&iproute("ip -j link show type ifb").await).unwrap();
    links.as_array().unwrap().iter().filter_map(|link| link["ifname"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
#[ignore = "needs network namespaces, iptables and the reference plugins: devstack/real/test"]
async fn a_pod_has_a_host_port_and_a_limited_bandwidth_by_the_plugins_after_ours_on_a_real_node() {
    let _chains = HostPortChains;
    let node = CniNode::new(2).await;
    let rates = json!({ "ingressRate": 80_000_000, "ingressBurst": 800_000, "egressRate": 80_000_000, "egressBurst": 800_000 });
    let arguments = json!({ "portMappings": [{ "hostPort": 18_097, "containerPort": 8080, "protocol": "tcp" }],
        "bandwidth": rates });
    let chain = node.chain().display().to_string();
    let options = format!("conflist = {chain:?}\nchained_plugins = [\"portmap\", \"bandwidth\"]\n");
    let mut daemon = node.daemon(&options).await;
    eventually("the configuration is there", async || node.chain().exists()).await;
    // A DEL before the ADD; it also removes what a failed run of this test has left.
    node.cnitool("del", "one", &arguments).await.unwrap();
    let before = intermediate_devices().await;
    node.cnitool("add", "one", &arguments).await.unwrap();
    // No CHECK: Debian's `portmap` looks for the rules of one IP version in the tables of both, and always fails.
    node.cnitool("add", "two", &json!({})).await.unwrap();

    let serve = "import socket; s=socket.create_server(('::', 8080), family=socket.AF_INET6, dualstack_ipv6=True); print('up', flush=True)\nwhile True: c=s.accept()[0]; c.sendall(b'hello'*2000); c.close()";
    let mut server = node.command_in("one", "python3");
    let mut server = server.args(["-c", serve]).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(said.next_line().await.unwrap().as_deref(), Some("up"));
    for address in [node.address(1), node.v6_address(1), "127.0.0.1".to_owned()] {
        assert_eq!(fetch(&address, 18_097).await, Some("hello".repeat(2000)), "{address}");
    }
    // Both directions of the connections have passed the filters of this pod; the other pod has none.
    let added: Vec<_> =
        intermediate_devices().await.into_iter().filter(|device| !before.contains(device)).collect();
    let [device] = &added[..] else { panic!("{added:?}") };
    assert!(shaped(&node.host_interface(11)).await.is_some_and(|bytes| bytes > 0));
    assert!(shaped(device).await.is_some_and(|bytes| bytes > 20_000));
    assert_eq!(shaped(&node.host_interface(12)).await, None);

    node.cnitool("del", "one", &arguments).await.unwrap();
    assert_eq!(fetch(&node.address(1), 18_097).await, None);
    assert_eq!(intermediate_devices().await, before);
    assert!(node.addresses("one").await.is_empty());
    node.cnitool("del", "two", &json!({})).await.unwrap();
    server.kill().await.unwrap();
    assert!(daemon.terminate().await.success());
}
