//! A daemon that is killed between any two changes of a real kernel and of a real Open vSwitch: nothing more succeeds, the rollback
//! included, and the next daemon binds or unbinds the same VIF.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use staffetta_driver::{Reason, Vif, VifAttachment, VifBindingDriver, VifClass, interface_name};

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
    let ports = switch.map(|switch| {
        switch.vsctl("--columns=name,external_ids --format=csv list interface | grep -e staffetta= || true")
    });
    sh(&on_node) + &sh(&in_pod) + &ports.unwrap_or_default()
}

/// A Python program that prints 1 if any kind of checksum offload of `eth0` is on (`ETHTOOL_GTXCSUM` of `SIOCETHTOOL`).
const HAS_CHECKSUM_OFFLOAD: &str = "import array,fcntl,socket,struct; value=array.array(\"I\",[0x16,0]); \
     fcntl.ioctl(socket.socket(),0x8946,struct.pack(\"16sP\",b\"eth0\",value.buffer_info()[0])); print(value[1])";

/// Returns the interface in the pod with its addresses, routes and checksum offload, without what differs between two interfaces.
fn in_pod(attachment: &VifAttachment) -> String {
    let netns = attachment.netns.file_name().unwrap().to_str().unwrap();
    sh(&format!(
        "ip -n {netns} -o link show dev eth0 | sed -E 's/^[0-9]+: eth0@[^:]*//; s/link-netns.*//; s/ state [A-Z]+//; s/,?(LOWER_UP|M-DOWN|NO-CARRIER)//g'; \
         ip -n {netns} -o addr show dev eth0 scope global | sed 's/^[0-9]*//'; ip -n {netns} route; ip -n {netns} -6 route | grep -v -e linkdown -e fe80; \
         ip netns exec {netns} python3 -c '{HAS_CHECKSUM_OFFLOAD}'"
    ))
}

/// Binds the VIF repeatedly, and kills the daemon after 0, 1, 2 ... changes of the kernel and requests to OVSDB, until the binding
/// succeeds. Tries each number four times: unbinds the VIF at once, or as one without a record, or after binding it again, or after
/// repeating `ADD` as the daemon does, which trusts CHECK. Checks that CHECK and the kernel agree on a pod that is whole, and that
/// nothing is left. Returns the number of changes and requests that bind the VIF.
fn kill_after_each_step(
    binding: &dyn VifBindingDriver,
    attachment: &VifAttachment,
    switch: Option<&OpenVSwitch>,
) -> usize {
    let _counted = COUNTED.lock();
    let unplug_unrecorded =
        || binding.unplug_unrecorded(&attachment.owner, &attachment.netns, &attachment.interface);
    let has_netns_only = matches!(attachment.vif.class, VifClass::MacvlanNested { .. });
    binding.plug(attachment).unwrap();
    let whole = in_pod(attachment);
    binding.unplug(attachment).unwrap();
    let is_bound_after = |steps: &usize| {
        let mut is_bound = false;
        for case in ["unbound", "unrecorded", "bound again", "repeated"] {
            let at = format!("{case}, after {steps} changes");
            LEFT.store(*steps, Ordering::Relaxed);
            is_bound = binding.plug(attachment).is_ok();
            if !is_bound && case != "repeated" {
                let _ = binding.unplug(attachment);
            }
            LEFT.store(usize::MAX, Ordering::Relaxed);
            let is_to_bind =
                case == "bound again" || case == "repeated" && binding.check(attachment).is_err();
            if is_to_bind {
                binding.plug(attachment).unwrap_or_else(|error| panic!("{at}: {error}"));
            }
            if is_to_bind || case == "repeated" {
                binding.check(attachment).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert_eq!(in_pod(attachment), whole, "{at}");
            }
            if case == "unrecorded" && !has_netns_only {
                unplug_unrecorded().unwrap_or_else(|error| panic!("{at}: {error}"));
            } else {
                binding.unplug(attachment).unwrap_or_else(|error| panic!("{at}: {error}"));
            }
            assert_eq!(existing(attachment, switch), "", "{at}");
            assert_eq!(binding.check(attachment).unwrap_err().reason(), Reason::NotFound);
        }
        is_bound
    };
    let steps = (0..100).find(is_bound_after).expect("a VIF is bound by fewer changes");
    // A DEL may be cut off anywhere, too.
    for cut in 0..steps + 8 {
        binding.plug(attachment).unwrap();
        LEFT.store(cut, Ordering::Relaxed);
        let _ = if cut % 2 == 0 || has_netns_only { binding.unplug(attachment) } else { unplug_unrecorded() };
        LEFT.store(usize::MAX, Ordering::Relaxed);
        binding.unplug(attachment).unwrap_or_else(|error| panic!("after {cut} changes of DEL: {error}"));
        assert_eq!(existing(attachment, switch), "", "after {cut} changes of DEL");
    }
    steps
}

/// Has others bind and unbind the VIF of a container: a container whose pod shows the same VIF, one whose port has an id with the same 11
/// first characters, and an earlier sandbox of the same pod whose network namespace is gone. Each is killed after 0, 1, 2 ... changes, and
/// its DEL comes with and without a record. Checks after each that the VIF is bound as before.
fn leave_what_another_container_has(
    binding: &dyn VifBindingDriver,
    (holder, intruder): (&VifAttachment, &VifAttachment),
    switch: Option<&OpenVSwitch>,
) {
    let _counted = COUNTED.lock();
    binding.plug(holder).unwrap();
    let held = || in_pod(holder) + &existing(holder, switch);
    let before = held();
    let with_vif = |vif: &Vif| VifAttachment { vif: vif.clone(), ..intruder.clone() };
    let mut alike = intruder.vif.clone();
    alike.id = format!("{}ffff-ffff", &holder.vif.id.as_str()[..11]).as_str().into();
    let earlier =
        VifAttachment { netns: "/run/netns/gone".into(), owner: "earlier/eth0".to_owned(), ..holder.clone() };
    for other in [with_vif(&holder.vif), with_vif(&alike), earlier] {
        for (steps, is_recorded) in (0..12).map(|steps| (steps, steps % 2 == 0)).chain([(usize::MAX, true)]) {
            let at = format!("{} with {:?}, after {steps} changes", other.owner, other.vif.id);
            LEFT.store(steps, Ordering::Relaxed);
            let error = binding.plug(&other).unwrap_err();
            if is_recorded {
                let _ = binding.unplug(&other);
            }
            LEFT.store(usize::MAX, Ordering::Relaxed);
            if steps == usize::MAX && other.netns.exists() {
                assert_eq!(error.reason(), Reason::Conflict, "{at}: {error}");
            }
            if is_recorded {
                binding.unplug(&other).unwrap_or_else(|error| panic!("{at}: {error}"));
            }
            binding.unplug_unrecorded(&other.owner, &other.netns, &other.interface).unwrap();
            assert_eq!(held(), before, "{at}");
            binding.check(holder).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
    binding.unplug(holder).unwrap();
    assert_eq!(existing(holder, switch), "");
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

/// Gives the pod a VIF of Open vSwitch.
fn on_switch(mut pod: VifAttachment, bridge: &str) -> VifAttachment {
    pod.vif.class = VifClass::OpenVSwitch { vif_name: "eth0".to_owned(), bridge_name: bridge.to_owned() };
    pod
}

/// Gives the pod a VIF with a Linux bridge of its own before Open vSwitch.
fn hybrid(mut pod: VifAttachment, bridge: &str) -> VifAttachment {
    let own = interface_name("qbr", pod.vif.id.as_str());
    pod.vif.class = VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: own };
    (pod.vif.network.bridge, pod.vif.plugin) = (Some(bridge.to_owned()), "ovs".to_owned());
    pod
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn a_daemon_killed_between_any_two_changes_of_open_vswitch_leaves_only_what_the_next_one_removes() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let permitted = || PermittedBridges::new(vec![bridge.clone()]);
    let pod = on_switch(node.pod(11), &bridge);
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted());
    assert!(kill_after_each_step(&binding, &pod, Some(&switch)) > 8);

    let pod = hybrid(node.pod(12), &bridge);
    let binding = BridgeBinding::new(switch.socket(), permitted());
    assert!(kill_after_each_step(&binding, &pod, Some(&switch)) > 14);
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn a_removal_of_a_killed_daemon_that_open_vswitch_has_not_applied_yet_is_awaited() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let _counted = COUNTED.lock();
    let [pod, other] = [11, 12].map(|host| on_switch(node.pod(host), &bridge));
    let binding = OpenVSwitchBinding::new(switch.socket(), PermittedBridges::new(vec![bridge]));
    binding.plug(&pod).unwrap();
    binding.plug(&other).unwrap();
    switch.kill("STOP");
    // The pair, a read of the port, its removal; the next request would ask whether that is applied.
    LEFT.store(3, Ordering::Relaxed);
    binding.unplug(&pod).unwrap_err();
    LEFT.store(usize::MAX, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let plugged = scope.spawn(|| binding.plug(&pod));
        // It has read the datapath and the port, and would have added the port again.
        while LEFT.load(Ordering::Relaxed) > usize::MAX - 5 && !plugged.is_finished() {
            std::thread::yield_now();
        }
        switch.kill("CONT");
        plugged.join().unwrap().unwrap();
    });
    binding.check(&pod).unwrap();
    assert!(node.carries_tcp(1, 0, "10.99.0.11"), "Open vSwitch hears the new interface");
    binding.unplug(&pod).unwrap();
    binding.unplug(&other).unwrap();
}

#[test]
#[ignore = "needs network namespaces"]
fn what_another_container_has_is_neither_bound_nor_unbound_whatever_is_lost() {
    let mut node = Node::new();
    let permitted = PermittedBridges::new(vec![node.bridge.clone()]);
    let binding = BridgeBinding::new("/run/none".into(), permitted);
    leave_what_another_container_has(&binding, (&node.pod(11), &node.pod(12)), None);
}

#[test]
#[ignore = "needs network namespaces and Open vSwitch"]
fn what_another_container_has_on_open_vswitch_is_neither_bound_nor_unbound_whatever_is_lost() {
    let mut node = Node::new();
    let bridge = format!("stov{}", node.number);
    let switch = OpenVSwitch::start(&bridge);
    let permitted = || PermittedBridges::new(vec![bridge.clone()]);
    let pods = [on_switch(node.pod(11), &bridge), on_switch(node.pod(12), &bridge)];
    let binding = OpenVSwitchBinding::new(switch.socket(), permitted());
    leave_what_another_container_has(&binding, (&pods[0], &pods[1]), Some(&switch));

    let pods = [hybrid(node.pod(13), &bridge), hybrid(node.pod(14), &bridge)];
    let binding = BridgeBinding::new(switch.socket(), permitted());
    let mut alike = pods[1].clone();
    alike.vif.class = pods[0].vif.class.clone();
    leave_what_another_container_has(&binding, (&pods[0], &alike), Some(&switch));
}
