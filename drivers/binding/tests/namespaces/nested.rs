//! VIFs on an interface of the node.

use staffetta_binding::NestedBinding;
use staffetta_driver::{VifBindingDriver, VifClass};

use crate::node::Node;

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
