//! A node of a test: bridges, network namespaces of pods, and packets between them.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use staffetta_driver::{Network, SubnetAddresses, Vif, VifAttachment, VifClass};

/// Runs a command of `sh`, which must succeed.
pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn succeeds(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).output().unwrap().status.success()
}

/// A bridge and the network namespaces of its pods. All of them are removed when it is dropped.
pub(crate) struct Node {
    pub(crate) bridge: String,
    pub(crate) number: u32,
    pub(crate) pods: Vec<String>,
}

static NODES: AtomicU32 = AtomicU32::new(0);

impl Node {
    pub(crate) fn new() -> Self {
        let number = std::process::id() % 10_000 * 10 + NODES.fetch_add(1, Ordering::Relaxed);
        let bridge = format!("stbr{number}");
        sh(&format!("ip link add {bridge} type bridge && ip link set {bridge} up"));
        Self { bridge, number, pods: Vec::new() }
    }

    /// Creates a network namespace, and the attachment of a VIF with the addresses that end in `host`.
    pub(crate) fn pod(&mut self, host: u8) -> VifAttachment {
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
        let owner = format!("{host:02x}{:062x}/eth0", self.number);
        VifAttachment { vif, netns, interface: "eth0".to_owned(), default_route: true, owner }
    }

    /// Runs a command in the network namespace of a pod.
    pub(crate) fn run_in(&self, pod: usize, command: &str) -> String {
        sh(&format!("ip netns exec {} {command}", self.pods[pod]))
    }

    /// Sends a file by TCP from the first pod to the second one.
    pub(crate) fn carries_tcp(&self, from: usize, to: usize, address: &str) -> bool {
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

    pub(crate) fn pings(&self, from: usize, address: &str) -> bool {
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

/// The interface of the node called `name`, as the kernel shows it.
pub(crate) fn link(name: &str) -> Option<Value> {
    let output = Command::new("ip").args(["-j", "-d", "link", "show", name]).output().unwrap();
    serde_json::from_slice::<Value>(&output.stdout).ok().map(|links| links[0].clone())
}
