//! A daemon that is killed between any two changes of a real kernel and of a real Open vSwitch: nothing more succeeds, the rollback
//! included, and the next daemon binds or unbinds the same VIF.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use staffetta_driver::{Reason, VifAttachment, VifBindingDriver, VifClass, interface_name};

use crate::changes::LEFT;
use crate::messages::GROUP;
use crate::{BridgeBinding, NestedBinding, OpenVSwitchBinding, PermittedBridges};
use node::{Node, sh};
use switch::OpenVSwitch;

#[path = "../tests/namespaces/node.rs"]
mod node;
#[path = "../tests/namespaces/switch.rs"]
mod switch;

/// The lock that a test holds while it uses the counter [`LEFT`], which all tests share.
static COUNTED: Mutex<()> = Mutex::new(());

/// Returns the interfaces of the VIF that these drivers created on the node, all Ethernet interfaces in the pod, and all ports of
/// Open vSwitch that these drivers created, each on its own line; empty if there are none.
fn existing(attachment: &VifAttachment, switch: Option<&OpenVSwitch>) -> String {
    let netns = attachment.netns.file_name().unwrap().to_str().unwrap();
    let own = &attachment.host_interface()[3..];
    let on_node = format!("ip -o link show group {GROUP} | grep -e '{own}' || true");
    let in_pod = format!("ip -n {netns} -o link | grep -e link/ether || true");
    let ports =
        switch.map(|switch| switch.vsctl("--columns=name --bare find interface external_ids:staffetta=cni"));
    sh(&on_node) + &sh(&in_pod) + &ports.unwrap_or_default()
}

/// Binds the VIF repeatedly, and kills the daemon after 0, 1, 2 ... changes of the kernel and requests to OVSDB, until the binding
/// succeeds. Tries each number twice: unbinds the VIF at once, or after binding it again, and checks that nothing is left. Returns the
/// number of changes and requests that bind the VIF.
fn kill_after_each_step(
    binding: &dyn VifBindingDriver,
    attachment: &VifAttachment,
    switch: Option<&OpenVSwitch>,
) -> usize {
    let _counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_bound_after = |steps: &usize| {
        let mut is_bound = false;
        for again in [false, true] {
            LEFT.store(*steps, Ordering::Relaxed);
            is_bound = binding.plug(attachment).is_ok();
            if !is_bound {
                let _ = binding.unplug(attachment);
            }
            LEFT.store(usize::MAX, Ordering::Relaxed);
            if again {
                binding.plug(attachment).unwrap_or_else(|error| panic!("after {steps} changes: {error}"));
                binding.check(attachment).unwrap();
            }
            binding.unplug(attachment).unwrap_or_else(|error| panic!("after {steps} changes: {error}"));
            assert_eq!(existing(attachment, switch), "", "after {steps} changes");
            assert_eq!(binding.check(attachment).unwrap_err().reason(), Reason::NotFound);
        }
        is_bound
    };
    (0..100).find(is_bound_after).expect("a VIF is bound by fewer changes")
}

#[test]
#[ignore = "needs network namespaces"]
fn a_daemon_killed_between_any_two_changes_of_the_kernel_leaves_only_what_the_next_one_removes() {
    let mut node = Node::new();
    let permitted = PermittedBridges::new(vec![node.bridge.clone()]);
    let (binding, pod) = (BridgeBinding::new("/run/none".into(), permitted), node.pod(11));
    // The pair, two addresses, up, two default routes.
    assert_eq!(kill_after_each_step(&binding, &pod, None), 6);

    let nested = NestedBinding::new(Some(node.bridge.clone()));
    let mut pod = node.pod(12);
    pod.vif.class = VifClass::MacvlanNested { vif_name: "eth0".to_owned() };
    assert_eq!(kill_after_each_step(&nested, &pod, None), 6);
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn a_daemon_killed_between_any_two_changes_of_open_vswitch_leaves_only_what_the_next_one_removes() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let permitted = || PermittedBridges::new(vec![bridge.clone()]);
    let mut pod = node.pod(11);
    pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: bridge.clone() };
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted());
    assert!(kill_after_each_step(&binding, &pod, Some(&switch)) > 6);

    let mut pod = node.pod(12);
    let own = interface_name("qbr", pod.vif.id.as_str());
    pod.vif.class = VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: own };
    (pod.vif.network.bridge, pod.vif.plugin) = (Some(bridge.clone()), "ovs".to_owned());
    let binding = BridgeBinding::new(switch.socket(), permitted());
    assert!(kill_after_each_step(&binding, &pod, Some(&switch)) > 12);
}
