//! Registers the handlers `vnode` and `peer_deployment`, which run Koupleless modules on Java bases.

use std::sync::Arc;

use staffetta_driver::tunnel::Tunnel;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_virtual_node::vnode::peer::{PEER_HANDLER, PeerDeployments, PeerIndex};
use staffetta_virtual_node::vnode::tracker::{OperationTracker, TrackerPolicy};
use staffetta_virtual_node::vnode::{HANDLER, Vnode, VnodeOptions};
use tracing::info;

use super::unreachable::Unreachable;
use crate::base::metrics::Metrics;
use crate::engine::identity::{ReplicaIdentity, identity};

/// Registers the handlers `vnode` and `peer_deployment`, and the section `[vnode]`.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<VnodeOptions>(HANDLER);
    let about = "Represents Koupleless bases as nodes and runs their pods as modules.";
    let entry = registry.handler(HANDLER, about, vnode);
    (entry.in_every_replica, entry.has_virtual_nodes) = (true, true);
    registry.handler(
        PEER_HANDLER,
        "Gives peer Deployments one replica for each Koupleless base that matches.",
        |setup| {
            let peers = PeerIndex::new(options(setup)?.environment);
            Ok(PeerDeployments::new(setup.client(), Arc::new(peers)).registration().erase())
        },
    );
}

/// Returns the options of the section `[vnode]`, for the handlers `vnode` and `peer_deployment`. Fails if they contradict each other.
fn options(setup: &Setup) -> Result<VnodeOptions, SetupError> {
    let options: VnodeOptions = setup.section(HANDLER)?;
    match options.contradiction() {
        Some(contradiction) => Err(SetupError::Invalid(contradiction)),
        None => Ok(options),
    }
}

/// Creates the handler `vnode`, and a readiness check for each of its tunnels. In a dry run, it watches nothing and starts no tunnel.
fn vnode(setup: &Setup) -> Result<Registration, SetupError> {
    let options = options(setup)?;
    let mut tunnels = Vec::new();
    for name in &options.tunnels {
        let tunnel = setup.driver_named::<dyn Tunnel>(name)?;
        // Nothing starts the tunnel in a dry run.
        if setup.plan.is_none() {
            let ready = Arc::clone(&tunnel);
            setup.check(name, move || {
                let ready = ready.ready();
                let cause = DriverError::new(Reason::Unavailable, "receive the reports of bases");
                let error = Unreachable::new("the tunnel is not ready; the log says why", cause);
                async move { if ready { Ok(()) } else { Err(error.into()) } }
            });
        }
        tunnels.push((name.clone(), tunnel));
    }
    if setup.plan.is_some() {
        info!("a dry run shows nothing of the handler `vnode`: bases report to a running controller only");
        return Ok(Registration::new(()).erase());
    }
    super::virtual_node::diagnose(setup, HANDLER, "bases")?;
    let metrics = setup.shared(|| Ok(Metrics::default()))?;
    let counted = Arc::clone(&metrics);
    let tracker = OperationTracker::new(TrackerPolicy::default(), setup.recorder.clone(), move |ended| {
        counted.module_operations.count(ended);
    });
    metrics.module_operations.set_source(&tunnels, &tracker);
    let handler = Vnode {
        cluster: setup.cluster_id()?,
        client: setup.client(),
        replica: setup.shared(|| Ok(ReplicaIdentity(identity())))?.0.clone(),
        peers: Arc::new(PeerIndex::new(&options.environment)),
        options,
        tunnels,
        tracker,
        recorder: setup.recorder.clone(),
        figures: metrics.virtual_nodes.clone(),
    };
    Ok(handler.registration().erase())
}
