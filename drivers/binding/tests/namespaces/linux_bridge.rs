//! VIFs on a Linux bridge.

use staffetta_driver::{Reason, Route, VifAttachment, VifBindingDriver};

use crate::binding;
use crate::node::{Node, link, sh, succeeds};

#[test]
#[ignore = "needs network namespaces"]
fn two_pods_on_a_linux_bridge_exchange_packets_of_both_ip_versions() {
    let mut node = Node::new();
    let binding = binding(&node);
    let pods = [node.pod(11), node.pod(12)];
    for pod in &pods {
        binding.plug(pod).unwrap();
        binding.check(pod).unwrap();
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
        binding.unplug(pod).unwrap();
        binding.unplug(pod).unwrap();
        assert!(link(&pod.host_interface()).is_none());
        assert_eq!(binding.check(pod).unwrap_err().reason(), Reason::NotFound);
    }
}

#[test]
#[ignore = "needs network namespaces"]
fn a_second_plug_replaces_what_a_killed_daemon_left() {
    let mut node = Node::new();
    let binding = binding(&node);
    let pod = node.pod(11);
    binding.plug(&pod).unwrap();
    let first = link(&pod.host_interface()).unwrap()["ifindex"].clone();
    binding.plug(&pod).unwrap();
    assert_ne!(link(&pod.host_interface()).unwrap()["ifindex"], first);
    binding.check(&pod).unwrap();
    binding.unplug(&pod).unwrap();
}

#[test]
#[ignore = "needs network namespaces"]
fn an_interface_of_another_program_is_never_touched() {
    let mut node = Node::new();
    let binding = binding(&node);
    let pod = node.pod(11);
    let name = pod.host_interface();
    sh(&format!("ip link add {name} type bridge"));
    let refused = binding.plug(&pod).unwrap_err();
    binding.unplug(&pod).unwrap();
    let is_left = link(&name).is_some();
    sh(&format!("ip link del {name}"));
    assert!(is_left && refused.to_string().contains("another program has created"), "{refused}");

    sh(&format!("ip -n {} link add eth0 type bridge", node.pods[0]));
    assert!(binding.plug(&pod).is_err());
    binding.unplug(&pod).unwrap();
    assert!(link(&name).is_none());
    assert!(succeeds(&format!("ip -n {} link show eth0", node.pods[0])));
}

#[test]
#[ignore = "needs network namespaces"]
fn a_missing_namespace_and_that_of_the_node_are_refused_and_leave_nothing() {
    let mut node = Node::new();
    let binding = binding(&node);
    let pod = node.pod(11);
    for (netns, reason) in [("/run/netns/none", Reason::NotFound), ("/proc/self/ns/net", Reason::Refused)] {
        let pod = VifAttachment { netns: netns.into(), ..pod.clone() };
        assert_eq!(binding.plug(&pod).unwrap_err().reason(), reason);
        binding.unplug(&pod).unwrap();
        assert!(link(&pod.host_interface()).is_none());
    }
}

#[test]
#[ignore = "needs network namespaces"]
fn only_the_first_of_several_interfaces_of_a_pod_has_the_default_route() {
    let mut node = Node::new();
    let binding = binding(&node);
    let first = node.pod(11);
    let mut second = node.pod(12);
    (second.netns, second.interface, second.default_route) = (first.netns.clone(), "eth1".to_owned(), false);
    for subnet in &mut second.vif.subnets {
        let is_v4 = subnet.cidr.addr().is_ipv4();
        let v4 = ("10.98.0.0/24", "10.98.0.12", "10.98.0.1");
        let (cidr, ip, gateway) = if is_v4 { v4 } else { ("fd98::/64", "fd98::c", "fd98::1") };
        (subnet.cidr, subnet.ips) = (cidr.parse().unwrap(), vec![ip.parse().unwrap()]);
        subnet.gateway = Some(gateway.parse().unwrap());
    }
    let route = Route { cidr: "10.97.0.0/16".parse().unwrap(), gateway: "10.98.0.7".parse().unwrap() };
    second.vif.subnets[0].routes = vec![route];
    for pod in [&first, &second] {
        binding.plug(pod).unwrap();
    }
    let routes = node.run_in(0, "ip route") + &node.run_in(0, "ip -6 route");
    let defaults: Vec<_> = routes.lines().filter(|line| line.starts_with("default")).collect();
    assert!(defaults.len() == 2 && defaults.iter().all(|line| line.contains("dev eth0")), "{routes}");
    assert!(routes.contains("10.97.0.0/16 via 10.98.0.7 dev eth1"), "{routes}");
    for pod in [&first, &second] {
        binding.unplug(pod).unwrap();
    }
    assert!(!node.run_in(0, "ip -o link").contains("link/ether"));
}

#[test]
#[ignore = "needs network namespaces"]
fn an_interface_that_kuryr_plugged_is_unplugged() {
    let mut node = Node::new();
    let (binding, pod) = (binding(&node), node.pod(11));
    let (name, mac) = (pod.host_interface(), pod.vif.address);
    sh(&format!(
        "ip link add {name} type veth peer name eth0 address {mac} netns {} && ip link set {name} master {} up",
        node.pods[0], node.bridge
    ));
    // There is no record of it, and the bridge of the kernel has no OVSDB.
    binding.unplug_unrecorded(&pod.owner, &pod.netns, "eth0").unwrap();
    assert!(link(&name).is_none());
    assert!(!node.run_in(0, "ip -o link").contains("eth0"));
}

#[test]
#[ignore = "needs network namespaces"]
fn a_check_sees_the_mtu_and_each_route() {
    let mut node = Node::new();
    let (binding, mut pod) = (binding(&node), node.pod(11));
    let route = Route { cidr: "10.97.0.0/16".parse().unwrap(), gateway: "10.99.0.7".parse().unwrap() };
    pod.vif.subnets[0].routes = vec![route];
    binding.plug(&pod).unwrap();
    let wrong = |change: &str, undo: &str| {
        node.run_in(0, change);
        let error = binding.check(&pod).unwrap_err();
        assert_eq!(error.reason(), Reason::NotFound);
        node.run_in(0, undo);
        binding.check(&pod).unwrap();
        error.to_string()
    };
    let mtu = wrong("ip link set eth0 mtu 1399", "ip link set eth0 mtu 1400");
    assert!(mtu.contains("the MTU of eth0 is 1399, and that of the network 1400"), "{mtu}");
    for (route, undo) in [
        ("10.97.0.0/16 via 10.99.0.7", ""),
        ("0.0.0.0/0 via 10.99.0.1", "dev eth0"),
        ("::/0 via fd99::1", "dev eth0"),
    ] {
        let family = if route.contains("::") { "-6" } else { "-4" };
        let error = wrong(
            &format!("ip {family} route del {route}"),
            &format!("ip {family} route add {route} {undo}"),
        );
        assert!(error.contains(&format!("there is no route to {route}")), "{error}");
    }
    wrong("ip route replace default via 10.99.0.9", "ip route replace default via 10.99.0.1");
    binding.unplug(&pod).unwrap();
}

#[test]
#[ignore = "needs network namespaces"]
fn a_namespace_that_cannot_be_opened_hangs_nothing_and_leaves_no_record_behind() {
    let mut node = Node::new();
    let (binding, pod) = (binding(&node), node.pod(11));
    let folder = tempfile::tempdir().unwrap();
    let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
    sh(&format!("mkfifo {} && ln -s {1} {1}", pipe.display(), link.display()));
    for netns in [pipe, link, folder.path().to_owned(), "/proc/self/mem".into()] {
        let other = VifAttachment { netns, ..pod.clone() };
        assert_eq!(binding.plug(&other).unwrap_err().reason(), Reason::NotFound, "{:?}", other.netns);
        binding.unplug(&other).unwrap();
        binding.unplug_unrecorded(&other.owner, &other.netns, "eth0").unwrap();
    }
    binding.plug(&pod).unwrap();
    binding.unplug(&pod).unwrap();
}
