//! VIFs that are not bound: the kernel is left as it was.

use staffetta_binding::{NestedBinding, OpenVSwitchBinding, PermittedBridges};
use staffetta_driver::{Reason, VifAttachment, VifBindingDriver, VifClass};

use crate::binding;
use crate::node::{Node, link, sh, succeeds};
use crate::switch::OpenVSwitch;

/// Plugs a VIF, which must be refused for a reason that contains `because`, and checks that nothing was created.
fn is_refused(binding: &dyn VifBindingDriver, pod: &VifAttachment, because: &str) {
    let error = binding.plug(pod).unwrap_err();
    assert!(error.to_string().contains(because), "{error}");
    assert_eq!(error.reason(), Reason::Refused, "{error}");
    assert!(link(&pod.host_interface()).is_none());
    let netns = pod.netns.file_name().unwrap().to_str().unwrap();
    let links = sh(&format!("ip -n {netns} -o link"));
    assert!(!links.contains("link/ether"), "{links}");
    binding.unplug(pod).unwrap();
}

#[test]
#[ignore = "needs network namespaces"]
fn a_bridge_that_is_not_permitted_gets_no_port() {
    let mut node = Node::new();
    let (binding, mut pod) = (binding(&node), node.pod(11));
    // It exists, and belongs to something else on the node.
    let other = format!("stot{}", node.number);
    sh(&format!("ip link add {other} type bridge"));
    pod.vif.class = VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: other.clone() };
    is_refused(&binding, &pod, "is not among those of `binding.bridges`");
    assert!(succeeds(&format!("test -z \"$(ls /sys/class/net/{other}/brif)\"")));
    sh(&format!("ip link del {other}"));
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn a_bridge_of_open_vswitch_that_is_not_permitted_gets_no_port() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let mut pod = node.pod(11);
    pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: bridge.clone() };
    let permitted = PermittedBridges::new(vec!["br-int".to_owned()]);
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted);
    is_refused(&binding, &pod, "is not among those of `binding.bridges`");
    assert_eq!(switch.vsctl(&format!("list-ports {bridge}")), "");
}

#[test]
#[ignore = "needs network namespaces"]
fn an_address_of_the_node_is_given_to_no_pod() {
    let mut node = Node::new();
    let binding = binding(&node);
    sh(&format!("ip addr add 10.99.0.77/24 dev {0} && ip addr add fd99::4d/64 dev {0} nodad", node.bridge));
    for number in [77, 78] {
        let mut pod = node.pod(number);
        // Of the first one both addresses, of the second one that of IPv6.
        if number == 78 {
            pod.vif.subnets[1].ips = vec!["fd99::4d".parse().unwrap()];
        }
        is_refused(&binding, &pod, "is an address of the node itself");
    }
    let mut pod = node.pod(79);
    pod.vif.subnets[0].ips = vec!["127.0.0.53".parse().unwrap()];
    is_refused(&binding, &pod, "127.0.0.53 is an address of the node itself");
}

#[test]
#[ignore = "needs network namespaces"]
fn an_mtu_that_is_too_small_is_refused() {
    let mut node = Node::new();
    let (binding, mut pod) = (binding(&node), node.pod(11));
    pod.vif.network.mtu = Some(1279);
    is_refused(&binding, &pod, "the MTU of the network is 1279; its addresses need at least 1280");
    pod.vif.subnets.truncate(1);
    pod.vif.network.mtu = Some(67);
    is_refused(&binding, &pod, "at least 68");

    // An interface of the node carries no frames that are longer than its own.
    sh(&format!("ip link set {} mtu 1399", node.bridge));
    pod.vif.network.mtu = Some(1400);
    pod.vif.class = VifClass::MacvlanNested { vif_name: "eth0".to_owned() };
    let nested = NestedBinding::new(Some(node.bridge.clone()));
    is_refused(&nested, &pod, "the MTU of the network is 1400, and that of the node's interface only 1399");
}

#[test]
#[ignore = "needs network namespaces"]
fn a_forged_interface_name_or_port_id_is_refused() {
    let mut node = Node::new();
    let (binding, pod) = (binding(&node), node.pod(11));
    for interface in ["", "..", "lo", "all", "a/b", "a%d", "abcdefghijklmnop", "a b"] {
        let forged = VifAttachment { interface: interface.to_owned(), ..pod.clone() };
        is_refused(&binding, &forged, "is not a name of an interface");
    }
    for id in ["", "short", "../../../etc/passwd", "889e8fb0 8b3a"] {
        let mut forged = pod.clone();
        forged.vif.id = id.into();
        is_refused(&binding, &forged, "is not the id of a port");
    }
    let mut group = pod.clone();
    group.vif.address = "01:00:5e:00:00:01".parse().unwrap();
    is_refused(&binding, &group, "is the address of a group");
}
