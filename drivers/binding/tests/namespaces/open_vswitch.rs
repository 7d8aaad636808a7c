//! VIFs on a bridge of Open vSwitch.

use staffetta_binding::{BridgeBinding, NodePort, NodePortOptions, OpenVSwitchBinding, PermittedBridges};
use staffetta_driver::{Reason, VifBindingDriver, VifClass, interface_name};

use crate::node::{Node, link, sh};
use crate::switch::OpenVSwitch;

fn permitted(bridge: &str) -> PermittedBridges {
    PermittedBridges::new(vec![bridge.to_owned()])
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn two_pods_on_open_vswitch_exchange_packets_of_both_ip_versions() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted(&bridge));
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
fn the_port_of_the_node_is_restored_follows_its_bridge_and_is_no_pods() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let other = format!("{bridge}b");
    let switch = OpenVSwitch::start(&bridge);
    switch.vsctl(&format!("add-br {other} -- set bridge {other} datapath_type=netdev"));
    let port_id = format!("{:05}999-0000-4000", node.number);
    let ensure = |bridge: &str| {
        let options = NodePortOptions {
            port_id: Some(port_id.clone()),
            mac: Some("fa:16:3e:00:00:99".parse().unwrap()),
            addresses: vec!["10.99.9.9/24".parse().unwrap()],
            bridge: bridge.to_owned(),
            mtu: Some(1600), // more than that of the bridge
        };
        NodePort::new(switch.socket(), options).unwrap().unwrap().ensure()
    };
    let name = interface_name("tap", &port_id);
    for bridge in [&bridge, &bridge, &other] {
        ensure(bridge).unwrap();
        assert_eq!(switch.vsctl(&format!("port-to-br {name}")).trim(), bridge);
    }
    // Whatever is lost is made again, and what is whole is left as it is.
    let lost = [
        format!("ovs-vsctl --db=unix:{} del-port {name}", switch.socket().display()),
        format!("ip link del {name}"),
        format!("ip addr del 10.99.9.9/24 dev {name}"),
        format!("ip link set {name} down"),
        format!("ip link set {name} address fa:16:3e:00:00:98"),
        format!("ip link set {name} mtu 1400"),
    ];
    for lost in lost {
        sh(&lost);
        ensure(&other).unwrap_or_else(|error| panic!("{lost}: {error}"));
        let found = sh(&format!("ip addr show {name}"));
        let is_whole = |part| found.contains(part);
        assert!(
            ["10.99.9.9/24", "fa:16:3e:00:00:99", ",UP", "mtu 1600"].into_iter().all(is_whole),
            "{lost}: {found}"
        );
        let before = link(&name);
        ensure(&other).unwrap();
        assert_eq!(link(&name), before, "{lost}");
    }
    assert!(ensure("none").unwrap_err().to_string().contains("there is no bridge none"));
    assert_eq!(switch.vsctl(&format!("port-to-br {name}")).trim(), other, "it is kept");

    // A pod that shows the port of the node, or another with the same start of the id, gets nothing, and its end costs the node nothing.
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted(&other));
    for id in [port_id.clone(), format!("{}ffff", &port_id[..11])] {
        let mut pod = node.pod(11 + u8::try_from(node.pods.len()).unwrap());
        pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: other.clone() };
        pod.vif.id = id.as_str().into();
        for is_there in [true, false] {
            if !is_there {
                sh(&format!("ip link del {name}"));
            }
            assert_eq!(binding.plug(&pod).unwrap_err().reason(), Reason::Conflict, "{id}");
            binding.unplug(&pod).unwrap();
            binding.unplug_unrecorded(&pod.owner, &pod.netns, "eth0").unwrap();
            assert_eq!(switch.vsctl(&format!("port-to-br {name}")).trim(), other, "{id}");
            ensure(&other).unwrap();
        }
    }
    switch.vsctl(&format!("del-br {bridge} -- del-br {other}"));
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn a_port_that_kuryr_or_an_earlier_boot_left_is_removed() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted(&bridge));
    let mut pod = node.pod(11);
    pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: bridge.clone() };
    let ports = || switch.vsctl(&format!("list-ports {bridge}"));
    // A reboot removes the namespace and with it the pair of interfaces, and keeps the database.
    binding.plug(&pod).unwrap();
    sh(&format!("ip netns del {}", node.pods[0]));
    assert_eq!(ports().trim(), pod.host_interface());
    binding.unplug(&pod).unwrap();
    assert_eq!(ports(), "");

    sh(&format!("ip netns add {}", node.pods[0]));
    let (name, mac, id) = (pod.host_interface(), pod.vif.address, &pod.vif.id);
    sh(&format!("ip link add {name} type veth peer name eth0 address {mac} netns {}", node.pods[0]));
    switch.vsctl(&format!("add-port {bridge} {name} -- set interface {name} external_ids:iface-id={id}"));
    binding.unplug_unrecorded(&pod.owner, &pod.netns, "eth0").unwrap();
    assert_eq!(ports(), "");
    assert!(link(&name).is_none());

    // With hybrid plug, the port has a Linux bridge.
    let [own, in_bridge, in_switch] = ["qbr", "qvb", "qvo"].map(|prefix| interface_name(prefix, id.as_str()));
    sh(&format!("ip link add {own} type bridge"));
    sh(&format!("ip link add {in_bridge} master {own} type veth peer name {in_switch}"));
    sh(&format!("ip link add {name} type veth peer name eth0 address {mac} netns {}", node.pods[0]));
    sh(&format!("ip link set {name} master {own}"));
    switch.vsctl(&format!(
        "add-port {bridge} {in_switch} -- set interface {in_switch} external_ids:iface-id={id}"
    ));
    binding.unplug_unrecorded(&pod.owner, &pod.netns, "eth0").unwrap();
    assert_eq!(ports(), "");
    assert!([&own, &in_bridge, &in_switch, &name].into_iter().all(|name| link(name).is_none()));
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn two_pods_with_hybrid_plug_exchange_packets_through_a_bridge_of_their_own() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let binding = BridgeBinding::new(switch.socket(), permitted(&bridge));
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
