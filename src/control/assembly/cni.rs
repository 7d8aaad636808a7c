//! Registers the drivers that bind VIFs on a node, and the handler `cni` in the command `cni-daemon`.

use std::sync::Arc;
use std::time::Duration;

use staffetta_binding::{
    BindingOptions, BridgeBinding, NestedBinding, NodePort, NodePortOptions, OpenVSwitchBinding,
    PermittedBridges,
};
use staffetta_cni_daemon::{CniDaemon, CniDaemonOptions, HANDLER, registration};
use staffetta_driver::{DriverError, VifBindingDriver};
use staffetta_handler::{Registry, Setup, SetupError, causes};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::unreachable::Unreachable;
use crate::base::metrics::Metrics;

/// The name of the section with the options of the CNI daemon.
pub(crate) const SECTION: &str = "cni_daemon";
/// The name of the section with the options of the drivers that bind VIFs.
const BINDING: &str = "binding";
/// The name of the section with the options of the Open vSwitch port by which the node itself reaches its pods.
const NODE_PORT: &str = "node_port";
/// The interval at which the daemon looks after the port of the node.
const NODE_PORT_INTERVAL: Duration = Duration::from_secs(5);

/// Registers the configuration sections of the CNI daemon.
pub(crate) fn sections(registry: &mut Registry) {
    registry.section::<CniDaemonOptions>(SECTION);
    registry.section::<BindingOptions>(BINDING);
    registry.section::<NodePortOptions>(NODE_PORT);
}

/// Registers the sections of the CNI daemon, and a driver for each class of VIFs that it can bind. The name of a driver is that of its
/// class.
pub(super) fn register(registry: &mut Registry) {
    sections(registry);
    // The command `cni-daemon` has no dry run.
    let about = "Binds the VIFs of one class to pods of a node.";
    registry.driver_trait::<dyn VifBindingDriver>("vif_binding", "VIFOpenVSwitch", about).has_option = false;
    drivers! { registry, setup:
        dyn VifBindingDriver, "VIFBridge", "A port of a Linux bridge, which may be connected to Open vSwitch." =>
            Arc::new(BridgeBinding::new(binding(setup)?.ovsdb, bridges(setup)?));
        dyn VifBindingDriver, "VIFOpenVSwitch", "A port of an Open vSwitch bridge." =>
            Arc::new(OpenVSwitchBinding::new(binding(setup)?.ovsdb, bridges(setup)?));
        dyn VifBindingDriver, "VIFVlanNested", "A VLAN interface of the node." =>
            Arc::new(NestedBinding::new(binding(setup)?.link_iface));
        dyn VifBindingDriver, "VIFMacvlanNested", "A macvlan interface of the node." =>
            Arc::new(NestedBinding::new(binding(setup)?.link_iface));
    }
}

/// Returns the options of the drivers that bind VIFs.
fn binding(setup: &Setup) -> Result<BindingOptions, SetupError> {
    setup.section(BINDING)
}

/// Returns the bridges of the node to which pods may be connected, from the option `binding.bridges`.
fn bridges(setup: &Setup) -> Result<PermittedBridges, SetupError> {
    Ok(PermittedBridges::new(binding(setup)?.bridges))
}

/// Adds the handler `cni`, which watches the pods of the node `node_name` and passes their VIFs to `daemon`.
pub(crate) fn handler(registry: &mut Registry, daemon: Arc<CniDaemon>, node_name: String) {
    registry.handler(HANDLER, "Knows the pods of a node and their VIFs.", move |setup| {
        let metrics = setup.shared(|| Ok(Metrics::default()))?;
        metrics.cni_requests.start();
        daemon.observe(
            setup.recorder.clone(),
            Arc::new(move |command, code, time| metrics.cni_requests.ended(command, code, time)),
        );
        if let Some(port) = node_port(setup)? {
            let (interface, mac) = port.identity();
            daemon.reserve(interface, mac);
            keep(setup, port, Arc::clone(&daemon));
        }
        Ok(registration(&daemon, &node_name))
    });
}

/// Returns the Open vSwitch port of the node; `None` unless the section `[node_port]` describes one.
fn node_port(setup: &Setup) -> Result<Option<NodePort>, SetupError> {
    NodePort::new(binding(setup)?.ovsdb, setup.section(NODE_PORT)?).map_err(SetupError::Invalid)
}

/// Adds a readiness check that creates the port of the node, and is repeated until it succeeds. Later, the port is looked after for as
/// long as the process runs, and restored when it or its interface is lost.
fn keep(setup: &Setup, port: NodePort, daemon: Arc<CniDaemon>) {
    // Two at a time would create the port twice.
    let port = Arc::new(Mutex::new(port));
    let created = Arc::clone(&port);
    setup.check("node port", move || {
        let ensured = ensure(Arc::clone(&created));
        async {
            ensured
                .await
                .map_err(|error| Unreachable::new("the port of the node cannot be created", error).into())
        }
    });
    tokio::spawn(async move {
        loop {
            sleep(NODE_PORT_INTERVAL).await;
            let error = ensure(Arc::clone(&port)).await.err();
            daemon.set_node_port_error(error.map(|error| causes(&error)));
        }
    });
}

async fn ensure(port: Arc<Mutex<NodePort>>) -> Result<(), DriverError> {
    let port = port.lock_owned().await;
    let ensured = spawn_blocking(move || port.ensure()).await;
    ensured.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
