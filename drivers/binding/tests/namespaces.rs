//! Binds VIFs in real network namespaces. The kernel's own view (`ip -j`) and packets are the judge.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use staffetta_binding::{BridgeBinding, LinuxBridgeBinding, NestedBinding, OpenVSwitchBinding};
use staffetta_driver::{
    Network, Reason, SubnetAddresses, Vif, VifAttachment, VifBindingDriver, VifClass, interface_name,
};

/// Runs a command of `sh`, which must succeed.
fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn succeeds(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).output().unwrap().status.success()
}

/// A bridge and the network namespaces of its pods. All of them are removed when it is dropped.
struct Node {
    bridge: String,
    number: u32,
    pods: Vec<String>,
}

static NODES: AtomicU32 = AtomicU32::new(0);

impl Node {
    fn new() -> Self {
        let number = std::process::id() % 10_000 * 10 + NODES.fetch_add(1, Ordering::Relaxed);
        let bridge = format!("stbr{number}");
        sh(&format!("ip link add {bridge} type bridge && ip link set {bridge} up"));
        Self { bridge, number, pods: Vec::new() }
    }

    /// Creates a network namespace, and the attachment of a VIF with the addresses that end in `host`.
    fn pod(&mut self, host: u8) -> VifAttachment {
        let name = format!("stpod{}-{host}", self.number);
        sh(&format!("ip netns add {name} && ip -n {name} link set lo up"));
        let netns = PathBuf::from(format!("/run/netns/{name}"));
        self.pods.push(name);
        let subnet = |cidr: &str, ip: String, gateway: &str| SubnetAddresses {
            cidr: cidr.parse().unwrap(),
            gateway: Some(gateway.parse().unwrap()),
            dns: Vec::new(),
            routes: Vec::new(),
            ips: vec![ip.parse::<IpAddr>().unwrap()],
        };
        let vif = Vif {
            id: format!("{:05}{host:03}-0000-4000", self.number).as_str().into(),
            address: format!("fa:16:3e:00:{:02x}:{host:02x}", self.number % 256).parse().unwrap(),
            active: true,
            plugin: "linux_bridge".to_owned(),
            class: VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: self.bridge.clone() },
            network: Network { mtu: Some(1400), ..Network::new("n".into()) },
            subnets: vec![
                subnet("10.99.0.0/24", format!("10.99.0.{host}"), "10.99.0.1"),
                subnet("fd99::/64", format!("fd99::{host:x}"), "fd99::1"),
            ],
            has_traffic_filtering: false,
            preserve_on_delete: false,
            port_profile: None,
        };
        VifAttachment { vif, netns, interface: "eth0".to_owned(), default_route: true }
    }

    /// Sends a file by TCP from the first pod to the second one.
    fn carries_tcp(&self, from: usize, to: usize, address: &str) -> bool {
        let (from, to) = (&self.pods[from], &self.pods[to]);
        let family = if address.contains(':') { "socket.AF_INET6" } else { "socket.AF_INET" };
        let server = format!(
            "import socket; s=socket.socket({family}); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); \
             s.settimeout(20); s.bind(('{address}', 7000)); s.listen(); print('up', flush=True); c=s.accept()[0]; n=0\nwhile n < 100000: n+=len(c.recv(65536))\nc.send(b'k')"
        );
        let client = format!(
            "import socket; c=socket.create_connection(('{address}', 7000), 5); c.sendall(b'x'*100000); assert c.recv(1) == b'k'"
        );
        let mut server = Command::new("ip")
            .args(["netns", "exec", to, "python3", "-c", &server])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line)
            .unwrap();
        let sent = Command::new("ip")
            .args(["netns", "exec", from, "python3", "-c", &client])
            .status()
            .unwrap()
            .success();
        let _ = server.kill();
        server.wait().unwrap();
        sent
    }

    fn pings(&self, from: usize, address: &str) -> bool {
        succeeds(&format!("ip netns exec {} python3 - <<'E'\n{}\nE", self.pods[from], ping(address)))
    }
}

/// A Python program that sends an echo request and waits for the reply.
fn ping(address: &str) -> String {
    let (family, protocol, request) = if address.contains(':') {
        ("AF_INET6", "IPPROTO_ICMPV6", 128)
    } else {
        ("AF_INET", "IPPROTO_ICMP", 8)
    };
    format!(
        "import socket,struct\ns=socket.socket(socket.{family}, socket.SOCK_DGRAM, socket.{protocol})\ns.settimeout(5)\n\
         b=struct.pack('!BBHHH', {request}, 0, 0, 0, 1)\n\
         d=b if {request} == 128 else struct.pack('!BBHHH', 8, 0, 0xf7fe, 0, 1)\ns.sendto(d, ('{address}', 1))\ns.recv(100)"
    )
}

impl Drop for Node {
    fn drop(&mut self) {
        for pod in &self.pods {
            let _ = succeeds(&format!("ip netns del {pod}"));
        }
        let _ = succeeds(&format!("ip link del {}", self.bridge));
    }
}

fn link(name: &str) -> Option<Value> {
    let output = Command::new("ip").args(["-j", "-d", "link", "show", name]).output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).ok().map(|links| links[0].clone())
}

#[test]
#[ignore = "needs network namespaces"]
fn two_pods_on_a_linux_bridge_exchange_packets_of_both_ip_versions() {
    let mut node = Node::new();
    let pods = [node.pod(11), node.pod(12)];
    for pod in &pods {
        LinuxBridgeBinding.plug(pod).unwrap();
        LinuxBridgeBinding.check(pod).unwrap();
    }
    for ns in &node.pods {
        sh(&format!("ip netns exec {ns} sysctl -qw net.ipv4.ping_group_range='0 2147483647'"));
    }
    assert!(node.pings(0, "10.99.0.12") && node.pings(0, "fd99::c"));
    assert!(node.carries_tcp(0, 1, "10.99.0.12") && node.carries_tcp(1, 0, "fd99::b"));

    let host = link(&pods[0].host_interface()).unwrap();
    assert_eq!((&host["master"], &host["mtu"]), (&node.bridge.as_str().into(), &1400.into()));
    let routes = sh(&format!("ip -n {0} route; ip -n {0} -6 route", node.pods[0]));
    assert!(
        routes.contains("default via 10.99.0.1 dev eth0") && routes.contains("default via fd99::1"),
        "{routes}"
    );
    let addresses = sh(&format!("ip -n {} -6 addr show dev eth0", node.pods[0]));
    assert!(addresses.contains("fd99::b/64") && addresses.contains("nodad"), "{addresses}");

    for pod in &pods {
        LinuxBridgeBinding.unplug(pod).unwrap();
        LinuxBridgeBinding.unplug(pod).unwrap();
        assert!(link(&pod.host_interface()).is_none());
        assert_eq!(LinuxBridgeBinding.check(pod).unwrap_err().reason(), Reason::NotFound);
    }
}

#[test]
#[ignore = "needs network namespaces"]
fn a_second_plug_replaces_what_a_killed_daemon_left() {
    let mut node = Node::new();
    let pod = node.pod(11);
    LinuxBridgeBinding.plug(&pod).unwrap();
    let first = link(&pod.host_interface()).unwrap()["ifindex"].clone();
    LinuxBridgeBinding.plug(&pod).unwrap();
    assert_ne!(link(&pod.host_interface()).unwrap()["ifindex"], first);
    LinuxBridgeBinding.check(&pod).unwrap();
    LinuxBridgeBinding.unplug(&pod).unwrap();
}

#[test]
#[ignore = "needs network namespaces"]
fn an_interface_of_another_program_is_never_touched() {
    let mut node = Node::new();
    let pod = node.pod(11);
    let name = pod.host_interface();
    sh(&format!("ip link add {name} type bridge"));
    let refused = LinuxBridgeBinding.plug(&pod).unwrap_err();
    LinuxBridgeBinding.unplug(&pod).unwrap();
    let is_left = link(&name).is_some();
    sh(&format!("ip link del {name}"));
    assert!(is_left && refused.to_string().contains("another program has created"), "{refused}");

    sh(&format!("ip -n {} link add eth0 type bridge", node.pods[0]));
    assert!(LinuxBridgeBinding.plug(&pod).is_err());
    LinuxBridgeBinding.unplug(&pod).unwrap();
    assert!(link(&name).is_none());
    assert!(succeeds(&format!("ip -n {} link show eth0", node.pods[0])));
}

#[test]
#[ignore = "needs network namespaces"]
fn a_missing_namespace_and_that_of_the_node_are_refused_and_leave_nothing() {
    let mut node = Node::new();
    let pod = node.pod(11);
    for (netns, reason) in [("/run/netns/none", Reason::NotFound), ("/proc/self/ns/net", Reason::Refused)] {
        let pod = VifAttachment { netns: netns.into(), ..pod.clone() };
        assert_eq!(LinuxBridgeBinding.plug(&pod).unwrap_err().reason(), reason);
        LinuxBridgeBinding.unplug(&pod).unwrap();
        assert!(link(&pod.host_interface()).is_none());
    }
}

#[test]
#[ignore = "needs network namespaces"]
fn the_addresses_of_a_pod_are_announced_when_it_is_plugged() {
    let mut node = Node::new();
    let (listener, pod) = (node.pod(11), node.pod(12));
    LinuxBridgeBinding.plug(&listener).unwrap();
    sh(&format!("ip netns exec {} sysctl -qw net.ipv4.conf.eth0.arp_accept=1", node.pods[0]));
    LinuxBridgeBinding.plug(&pod).unwrap();
    let mac = pod.vif.address.to_string();
    let heard = || {
        sh(&format!("ip -n {} neigh", node.pods[0])).contains(&format!("10.99.0.12 dev eth0 lladdr {mac}"))
    };
    assert!((0..50).any(|_| heard() || !succeeds("sleep 0.1")));
}

#[test]
#[ignore = "needs network namespaces"]
fn a_pod_on_a_macvlan_interface_reaches_another_one() {
    let mut node = Node::new();
    let binding = NestedBinding::new(Some(node.bridge.clone()));
    let pods = [node.pod(11), node.pod(12)].map(|mut pod| {
        pod.vif.class = VifClass::MacvlanNested { vif_name: "eth0".to_owned() };
        pod
    });
    for pod in &pods {
        binding.plug(pod).unwrap();
        binding.plug(pod).unwrap();
        binding.check(pod).unwrap();
    }
    assert!(node.carries_tcp(0, 1, "10.99.0.12") && node.carries_tcp(1, 0, "fd99::b"));
    for pod in &pods {
        binding.unplug(pod).unwrap();
        assert!(binding.check(pod).is_err());
    }
}

/// Open vSwitch with a datapath in userspace, in a folder of its own.
struct OpenVSwitch(tempfile::TempDir);

impl OpenVSwitch {
    fn start(bridge: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        sh(&format!(
            "export OVS_RUNDIR={path} OVS_DBDIR={path} OVS_LOGDIR={path}; cd {path}; \
             ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema; \
             ovsdb-server conf.db --remote=punix:db.sock --detach --no-chdir --pidfile --log-file >/dev/null 2>&1; \
             ovs-vsctl --db=unix:{path}/db.sock --no-wait init; \
             ovs-vswitchd unix:{path}/db.sock --detach --no-chdir --pidfile --log-file >/dev/null 2>&1; \
             ovs-vsctl --db=unix:{path}/db.sock add-br {bridge} -- set bridge {bridge} datapath_type=netdev"
        ));
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("db.sock")
    }

    fn vsctl(&self, command: &str) -> String {
        sh(&format!("ovs-vsctl --db=unix:{} {command}", self.socket().display()))
    }
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        let path = self.0.path().display();
        // With its interfaces, of which a failed test leaves some.
        let _ = succeeds(&format!(
            "ovs-appctl --target={path}/ovs-vswitchd.$(cat {path}/ovs-vswitchd.pid).ctl exit --cleanup"
        ));
        let _ = succeeds(&format!("kill $(cat {path}/ovsdb-server.pid)"));
    }
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn two_pods_on_open_vswitch_exchange_packets_of_both_ip_versions() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let binding = OpenVSwitchBinding::new(switch.socket());
    let pods = [node.pod(11), node.pod(12)].map(|mut pod| {
        pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: bridge.clone() };
        pod
    });
    for pod in &pods {
        binding.plug(pod).unwrap();
        binding.check(pod).unwrap();
        binding.plug(pod).unwrap();
    }
    assert!(node.carries_tcp(0, 1, "10.99.0.12") && node.carries_tcp(1, 0, "fd99::b"));
    let ids = switch.vsctl(&format!("get interface {} external_ids", pods[0].host_interface()));
    assert!(ids.contains(pods[0].vif.id.as_str()), "{ids}");
    for pod in &pods {
        binding.unplug(pod).unwrap();
        binding.unplug(pod).unwrap();
        assert!(binding.check(pod).is_err() && link(&pod.host_interface()).is_none());
    }
    assert_eq!(switch.vsctl(&format!("list-ports {bridge}")), "");

    // A port of another program with the name of a VIF's is refused, and stays.
    let name = pods[0].host_interface();
    switch.vsctl(&format!("add-port {bridge} {name} -- set interface {name} type=internal"));
    assert!(binding.plug(&pods[0]).unwrap_err().to_string().contains("another program"));
    binding.unplug(&pods[0]).unwrap();
    assert_eq!(switch.vsctl(&format!("list-ports {bridge}")).trim(), name);
    switch.vsctl(&format!("del-br {bridge}"));
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn two_pods_with_hybrid_plug_exchange_packets_through_a_bridge_of_their_own() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let binding = BridgeBinding::new(switch.socket());
    let pods = [node.pod(11), node.pod(12)].map(|mut pod| {
        let own = interface_name("qbr", pod.vif.id.as_str());
        pod.vif.class = VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: own };
        pod.vif.network.bridge = Some(bridge.clone());
        pod.vif.plugin = "ovs".to_owned();
        pod
    });
    for pod in &pods {
        binding.plug(pod).unwrap();
        binding.plug(pod).unwrap();
        binding.check(pod).unwrap();
    }
    assert!(node.carries_tcp(0, 1, "10.99.0.12") && node.carries_tcp(1, 0, "fd99::b"));
    let own = interface_name("qbr", pods[0].vif.id.as_str());
    let names = |prefix| interface_name(prefix, pods[0].vif.id.as_str());
    let ports = sh(&format!("ls /sys/class/net/{own}/brif"));
    assert_eq!(ports.lines().collect::<Vec<_>>(), [names("qvb"), names("tap")]);
    assert_eq!(sh(&format!("ip -6 addr show dev {own}")), "", "no pod reaches the node by it");
    let ids = switch.vsctl(&format!("get interface {} external_ids", names("qvo")));
    assert!(ids.contains(pods[0].vif.id.as_str()), "{ids}");

    let mut forged = pods[0].clone();
    forged.vif.class = VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: node.bridge.clone() };
    assert_eq!(binding.plug(&forged).unwrap_err().reason(), Reason::Refused);
    for pod in &pods {
        binding.unplug(pod).unwrap();
        binding.unplug(pod).unwrap();
        assert!(binding.check(pod).is_err());
    }
    assert!(["qbr", "qvb", "qvo", "tap"].iter().all(|prefix| link(&names(prefix)).is_none()));
    assert_eq!(switch.vsctl(&format!("list-ports {bridge}")), "");
}
