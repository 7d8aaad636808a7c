//! Runs the tunnels, and processes the reports and answers of bases.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use staffetta_driver::DriverError;
use staffetta_driver::tunnel::{
    NodeActivation, NodeDescription, NodeId, NodeStatusData, PodKey, TunnelEvent,
};
use staffetta_handler::{BackoffPolicy, causes};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::base::Base;
use super::channel::{TunnelLimits, TunnelReceiver, channel};
use super::describe::{health, reported_marks};
use super::operation::ContainerAction;
use super::source::{VnodeSource, starts};
use crate::node_store::NodeStore;

/// The delays before a tunnel that ended is started again.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));

/// The interval at which the queues of a tunnel forget bases that are not known any more.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

impl VnodeSource {
    /// Runs a tunnel, and starts it again when it ends.
    pub(super) async fn run_tunnel(&self, tunnel: usize, nodes: &Arc<NodeStore>) -> Infallible {
        let mut backoff = BACKOFF.start();
        let named = &self.tunnels[tunnel];
        loop {
            let (sender, receiver) = channel(TunnelLimits::default());
            let running = named.tunnel.start(&self.replica, &self.template.environment, sender);
            let ended: Result<(), DriverError> = tokio::select! {
                ended = running => ended,
                never = self.receive(tunnel, receiver, nodes) => match never {},
            };
            let error = ended.map_or_else(|error| causes(&error), |()| "it ended unexpectedly".to_owned());
            let wait = backoff.delay(None);
            warn!(
                tunnel = &*named.name,
                error,
                wait_ms = wait.as_millis(),
                "a tunnel ended and is restarted"
            );
            tokio::time::sleep(wait).await;
        }
    }

    /// Processes the events of a tunnel, one after the other, for ever.
    async fn receive(
        &self,
        tunnel: usize,
        mut receiver: TunnelReceiver,
        nodes: &Arc<NodeStore>,
    ) -> Infallible {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        let mut kept: HashSet<NodeId> = HashSet::new();
        loop {
            tokio::select! {
                event = receiver.recv() => match event {
                    Some((id, event)) => {
                        if self.process_event(tunnel, &id, event, nodes).await && !kept.contains(&id) {
                            receiver.keep(&id);
                            kept.insert(id);
                        }
                    }
                    // All senders are dropped: the tunnel is about to end.
                    None => std::future::pending().await,
                },
                _ = sweep.tick() => kept.retain(|id| {
                    let exists = self.bases.lock().get(&self.names(id).1).is_some();
                    if !exists {
                        receiver.release(id);
                    }
                    exists
                }),
            }
        }
    }

    /// Processes one event of a base. Returns `true` if the queue of the base in the tunnel is to be kept: after an introduction or a
    /// baseline query, if this process knows the base; after any other event, if this process looks after the base, through this tunnel.
    pub(super) async fn process_event(
        &self,
        tunnel: usize,
        id: &NodeId,
        event: TunnelEvent,
        nodes: &Arc<NodeStore>,
    ) -> bool {
        let names = self.names(id);
        let node = Arc::clone(&names.1);
        let event = match event {
            TunnelEvent::NodeDiscovered(description) => {
                self.introduced(tunnel, names, description, nodes).await;
                return self.bases.lock().get(&node).is_some();
            }
            TunnelEvent::BaselineQuery(query) => {
                let tunnel = &self.tunnels[tunnel].tunnel;
                let containers = self.baselines.baseline(id, tunnel.key(), &self.cluster, &query.request);
                if let Some(containers) = containers {
                    let image = |container: &Container| {
                        let key = tunnel.get_container_unique_key(&PodKey::All, container);
                        (key, container.image.clone().unwrap_or_default())
                    };
                    self.sent_baselines.record(&node, containers.iter().map(image).collect(), Instant::now());
                    query.answer(containers);
                }
                return self.bases.lock().get(&node).is_some();
            }
            event => event,
        };
        let base = self.bases.lock().held(&node).map(Arc::clone);
        // Another process looks after the base, or it belongs to another tunnel.
        let Some(base) = base.filter(|base| base.tunnel.name == self.tunnels[tunnel].name) else {
            return false;
        };
        let answers = matches!(event, TunnelEvent::NodeStatus(_) | TunnelEvent::AllContainerStatuses(_));
        if answers && base.end_wait_for_answer() {
            nodes.add_or_update(self.spec(&base));
        }
        match event {
            TunnelEvent::NodeStatus(status) => self.status(&base, &status, nodes),
            TunnelEvent::AllContainerStatuses(statuses) => {
                nodes.inventory(&node, &base.report(statuses));
                self.stop_unowned(&base).await;
            }
            TunnelEvent::StartContainerResponse(answer) => {
                nodes.notifier.pods_due(&base.answered(ContainerAction::Start, &answer), &node);
            }
            TunnelEvent::ShutdownContainerResponse(answer) => {
                nodes.notifier.pods_due(&base.answered(ContainerAction::Stop, &answer), &node);
            }
            TunnelEvent::NodeDiscovered(_) | TunnelEvent::BaselineQuery(_) => {}
        }
        true
    }

    /// Processes the introduction of a base: records a new base. If this process looks after the base, changes its node if the
    /// description has changed, and removes the node if the base ends.
    async fn introduced(
        &self,
        tunnel: usize,
        (id, node): (NodeId, Arc<str>),
        description: NodeDescription,
        nodes: &Arc<NodeStore>,
    ) {
        let ends = description.metadata.status == NodeActivation::Deactivated;
        let base = {
            let mut bases = self.bases.lock();
            let names = (id.clone(), Arc::clone(&node));
            if !bases.introduced(names, tunnel, &description, Instant::now()) {
                debug!(base = %id, tunnel = &*self.tunnels[tunnel].name, "a base of another tunnel introduced itself");
                return;
            }
            bases.held(&node).map(Arc::clone)
        };
        let Some(base) = base else { return };
        if ends {
            nodes.remove(&node);
            return;
        }
        let changed = {
            let mut profile = base.profile.lock();
            let changed = profile.description != description;
            if changed {
                profile.description = description.clone();
            }
            changed
        };
        if changed {
            starts(&base, &description).await;
        }
        if !nodes.contains(&node) {
            base.await_answer();
        } else if changed {
            nodes.add_or_update(self.spec(&base));
        }
        nodes.heartbeat(&node);
    }

    /// Processes the health report of a base: passes the health on to the node store, and corrects the labels, annotations and taints
    /// of the node.
    fn status(&self, base: &Base, status: &NodeStatusData, nodes: &NodeStore) {
        let marks = reported_marks(status);
        let changed = {
            let mut profile = base.profile.lock();
            let changed = profile.marks != marks;
            profile.marks = marks;
            changed
        };
        if changed && nodes.contains(&base.node) {
            nodes.add_or_update(self.spec(base));
        }
        nodes.health(&base.node, health(status));
    }
}
