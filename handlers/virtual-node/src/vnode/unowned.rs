//! Stops containers that no pod on their node has.

use staffetta_handler::causes;
use tokio::time::Instant;
use tracing::{info, warn};

use super::base::{Base, UnownedContainer};
use super::containers::ContainerStep;
use super::operation::ContainerAction;
use super::source::{TUNNEL_LIMIT, VnodeSource};
use crate::source::NodeSource;

impl VnodeSource {
    /// Stops the containers that the base has although no pod on its node has them, after a grace period, if that is enabled. Only
    /// containers that a pod or a peer Deployment is known to have had are stopped: a base may have others by itself. One that the base
    /// has started by mistake is stopped at once.
    pub(super) async fn stop_unowned(&self, base: &Base) {
        for UnownedContainer { key, pod, container } in
            base.unowned(self.unowned_grace, |is_it| self.baselines.former_baseline_container(is_it))
        {
            if !self.may_act(&base.node) {
                return;
            }
            let now = Instant::now();
            {
                let mut containers = base.containers.lock();
                if containers.stop(&key, now) != ContainerStep::Send(ContainerAction::Stop) {
                    continue;
                }
                containers.sending(&key, ContainerAction::Stop, "", now);
            }
            info!(node = &*base.node, module = %key, "unloading a module that no pod on the node has");
            base.follow(None, &key, ContainerAction::Stop);
            let call = base.tunnel.tunnel.shutdown_container(&base.id, &pod, &container);
            match tokio::time::timeout(TUNNEL_LIMIT, call).await {
                Ok(Ok(())) => base.containers.lock().sent(&key),
                Ok(Err(error)) => {
                    base.containers.lock().unsent(&key);
                    warn!(node = &*base.node, module = %key, error = causes(&error), "a module that no pod on the node has was not unloaded");
                }
                // It may have been sent: an answer, a report or the time limit ends the operation.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use staffetta_driver::tunnel::TunnelEvent;
    use staffetta_handler::{Event, Index, Tombstone};

    use super::*;
    use crate::vnode::peer::{PeerIndex, deployment};
    use crate::vnode::source::tests::{client, source};

    const GRACE: Duration = Duration::from_secs(600);

    /// Returns the modules that a base is asked to unload. It has `cart`, which a deleted Deployment named, `stock`, which an existing one
    /// names, `shop`, whose pod is gone after the first report, `till`, which has a pod, and `own`.
    async fn unloaded(grace: Option<Duration>) -> Vec<String> {
        let (mut source, nodes) = source(client("").0, &["one"]).await;
        let peers = Arc::new(PeerIndex::new("dev"));
        let [cart, stock] = ["cart", "stock"].map(|name| Arc::new(deployment(name, 1, &["a"], 1)));
        peers.apply(&Event::Added(Arc::clone(&cart)));
        peers.apply(&Event::Added(stock));
        peers.apply(&Event::Deleted(Tombstone::Last(cart)));
        (source.baselines, source.unowned_grace) = (peers, grace);
        let [shop, till] = ["shop", "till"].map(|name| {
            let pod = json!({ "metadata": { "name": name, "namespace": "default", "uid": name },
                "spec": { "nodeName": "vnode.one.dev", "containers": [{ "name": name }] } });
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        });
        nodes.pods.apply(&Event::Added(Arc::clone(&shop)));
        nodes.pods.apply(&Event::Added(till));
        for report in 0..4 {
            let status = |key| {
                json!({ "key": key, "name": key, "pod_key": "all", "state": "activated",
                "change_time": "2026-11-24T08:00:00Z" })
            };
            let statuses =
                serde_json::from_value(json!(["cart", "own", "shop", "stock", "till"].map(status))).unwrap();
            let id = "one".parse().unwrap();
            source.process_event(0, &id, TunnelEvent::AllContainerStatuses(statuses), &nodes).await;
            if report == 0 {
                nodes.pods.apply(&Event::Deleted(Tombstone::Last(Arc::clone(&shop))));
            }
            tokio::time::advance(GRACE / 2).await;
        }
        let base = Arc::clone(source.bases.lock().held("vnode.one.dev").unwrap());
        let containers = base.containers.lock();
        assert!(containers.under_way().all(|(_, action)| action == ContainerAction::Stop));
        let mut unloaded: Vec<_> = containers.under_way().map(|(key, _)| key.to_string()).collect();
        unloaded.sort();
        let followed = source.tracker.under_way().into_iter().map(|(_, _, [count, _])| count);
        assert_eq!(followed.sum::<u64>(), unloaded.len() as u64);
        unloaded
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_module_that_is_ours_and_that_nobody_wants_is_unloaded_and_only_if_that_is_enabled() {
        assert_eq!(unloaded(Some(GRACE)).await, ["cart", "shop"]);
        assert_eq!(unloaded(Some(GRACE * 2)).await, Vec::<String>::new(), "its pod may be late");
        assert_eq!(unloaded(None).await, Vec::<String>::new());
    }
}
