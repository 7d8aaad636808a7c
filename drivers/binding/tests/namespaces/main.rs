//! Binds VIFs in real network namespaces. The kernel's own view (`ip -j`) and packets are the judge.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod announcements;
mod linux_bridge;
mod nested;
mod node;
mod open_vswitch;
mod refusals;
mod switch;

use staffetta_binding::{BridgeBinding, PermittedBridges};

/// Creates the driver of the class `VIFBridge`, which permits the bridge of the node.
fn binding(node: &node::Node) -> BridgeBinding {
    BridgeBinding::new("/run/none".into(), PermittedBridges::new(vec![node.bridge.clone()]))
}
