//! The announcement of addresses to the neighbours of a pod.

use std::process::Command;

use staffetta_driver::{VifAttachment, VifBindingDriver};

use crate::binding;
use crate::node::{Node, sh, succeeds};

/// The variable that tells a test that it runs where `/proc/sys` is read-only.
const READ_ONLY: &str = "STAFFETTA_TEST_READ_ONLY";

/// Runs the test `name` of this program once more, in a mount namespace whose `/proc/sys` is read-only, as in a container. Returns
/// `true` if this is that run.
fn is_read_only(name: &str) -> bool {
    if std::env::var_os(READ_ONLY).is_some() {
        assert!(!succeeds("echo 1 >/proc/sys/net/ipv4/conf/lo/arp_notify"));
        return true;
    }
    let script =
        "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$0\" \"$@\"";
    let program = std::env::current_exe().unwrap();
    let mut again = Command::new("unshare");
    again.args(["--mount", "sh", "-c", script]).arg(program).args(["--ignored", "--exact", name]);
    let output = again.env(READ_ONLY, "1").output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

#[test]
#[ignore = "needs network namespaces"]
fn neighbours_learn_the_addresses_of_a_pod_although_proc_sys_is_read_only() {
    if !is_read_only("announcements::neighbours_learn_the_addresses_of_a_pod_although_proc_sys_is_read_only")
    {
        return;
    }
    let mut node = Node::new();
    let binding = binding(&node);
    let (listener, pod) = (node.pod(11), node.pod(12));
    binding.plug(&listener).unwrap();
    // It remembers the earlier owner of the addresses.
    let netns = &node.pods[0];
    for (family, address) in [("-4", "10.99.0.12"), ("-6", "fd99::c")] {
        let earlier = format!("neigh replace {address} lladdr 02:00:00:00:00:99 dev eth0 nud stale");
        sh(&format!("ip -n {netns} {family} {earlier}"));
    }
    binding.plug(&pod).unwrap();
    binding.announce(&pod).unwrap();
    let knows = |address: &str| {
        let neighbours = sh(&format!("ip -n {netns} neigh show {address}"));
        neighbours.contains(&format!("lladdr {}", pod.vif.address))
    };
    for address in ["10.99.0.12", "fd99::c"] {
        assert!((0..50).any(|_| knows(address) || !succeeds("sleep 0.1")), "{address}");
    }
}

#[test]
#[ignore = "needs network namespaces"]
fn the_announcement_of_a_pod_that_has_ended_is_nothing() {
    let mut node = Node::new();
    let (binding, pod) = (binding(&node), node.pod(11));
    binding.plug(&pod).unwrap();
    binding.unplug(&pod).unwrap();
    binding.announce(&pod).unwrap();
    let gone = VifAttachment { netns: "/run/netns/none".into(), ..pod };
    binding.announce(&gone).unwrap();
}
