//! The source of triggers of the handler `prefix_ip`. It also runs the [`Worker`], and records the worker's
//! reports as Events.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::Reason;
use staffetta_handler::{
    EventNote, HandlerError, Identity, Recorder, Source, Trigger, TriggerSender, causes,
};

use crate::HANDLER;
use crate::cluster::WatchedCluster;
use crate::error::{ADDRESS_DRIFT, ADDRESS_LOST, ADDRESSES_UNCHANGED, INTERFACE_FULL, SUBNET_EXHAUSTED};
use crate::nodes::Woken;
use crate::worker::{NodeReport, OnNodeReport, Worker};

/// A trigger for a node whose capacity may have changed without an event of the node, for example with the options of the cluster.
#[derive(Clone)]
pub struct NodeRefresh(Identity);

impl NodeRefresh {
    /// Creates the trigger for the node `node`.
    pub fn of(node: &Node) -> Self {
        Self(Identity::of_object(node))
    }
}

impl Trigger for NodeRefresh {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// A trigger for a pod that waits for an address: there may be one for it now.
#[derive(Clone)]
pub struct AddressReady(Identity);

impl AddressReady {
    /// Creates the trigger for the pod `pod`.
    pub fn of(pod: &Pod) -> Self {
        Self(Identity::of_object(pod))
    }
}

impl Trigger for AddressReady {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// The source that runs the worker, which changes and reads the interfaces of nodes. It sends a [`NodeRefresh`] for every labelled node
/// when the options change, and for a node whose capacity changes, and an [`AddressReady`] for every pod whose wait for an address may be over.
pub struct PrefixSource {
    /// The worker that calls the provider to change and read the network interfaces of nodes.
    pub worker: Worker,
    /// The nodes, pods and options of the cluster.
    pub cluster: Arc<WatchedCluster>,
}

#[async_trait]
impl Source for PrefixSource {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let refresh = async {
            loop {
                self.cluster.changed().await;
                for node in self.cluster.nodes() {
                    sender.send(NodeRefresh::of(&node));
                }
            }
        };
        let wake = async {
            loop {
                let Woken { pods, nodes } = self.worker.nodes.woken().await;
                for pod in pods.iter().filter_map(|pod| self.cluster.waiting.get(pod)) {
                    sender.send(AddressReady::of(&pod));
                }
                for node in nodes.iter().filter_map(|node| self.cluster.node(node)) {
                    sender.send(NodeRefresh::of(&node));
                }
            }
        };
        tokio::select! {
            never = self.worker.run() => match never {},
            () = refresh => Ok(()),
            () = wake => Ok(()),
        }
    }
}

/// Returns a function that records the reports of the worker as Events on the nodes.
pub fn record_reports(cluster: Arc<WatchedCluster>, recorder: Recorder) -> OnNodeReport {
    Box::new(move |node, report| {
        let Some(node) = cluster.node(node) else { return };
        let (reason, text) = describe(&report);
        let regarding = Identity::of_object(&*node);
        recorder.record(EventNote { handler: HANDLER, regarding, warning: true, reason, text });
    })
}

/// Returns the reason and the text of the Event that a report about a node becomes.
fn describe(report: &NodeReport) -> (&'static str, String) {
    match report {
        NodeReport::Failed(error) => match error.reason() {
            Reason::NoAddress => (
                SUBNET_EXHAUSTED,
                format!(
                    "{}: the subnet of the node has no free block of addresses; free addresses, or reserve a range of the subnet for prefixes",
                    causes(error)
                ),
            ),
            Reason::Quota => (
                INTERFACE_FULL,
                format!(
                    "{}: the network interface has no free slot; use more nodes or a larger machine type",
                    causes(error)
                ),
            ),
            _ => (ADDRESSES_UNCHANGED, format!("{}: the call is repeated later", causes(error))),
        },
        NodeReport::Drift(drift) => {
            let (reason, mut text) = if drift.lost_in_use.is_empty() {
                let (found, lost) = (drift.found.len(), drift.lost.len());
                let text = format!(
                    "somebody else added {found} blocks to the network interface and removed {lost}; the pool of the node is adapted"
                );
                (ADDRESS_DRIFT, text)
            } else {
                let pods = drift.lost_in_use.iter().take(5);
                let pods: Vec<_> = pods.map(|(address, pod)| format!("{pod} ({address})")).collect();
                let text = format!(
                    "somebody else removed the addresses of {} pods from the network interface; delete these pods: {}",
                    drift.lost_in_use.len(),
                    pods.join(", ")
                );
                (ADDRESS_LOST, text)
            };
            if let Some(unusable) = drift.unusable.first() {
                let count = drift.unusable.len();
                let _ = write!(
                    text,
                    "; {count} more are of another length, take slots, and are not used: {unusable} ..."
                );
            }
            (reason, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::DriverError;

    use super::*;
    use crate::node_pool::InterfaceDrift;

    #[test]
    fn every_report_says_what_to_do() {
        let failed = |reason| describe(&NodeReport::Failed(DriverError::new(reason, "assign addresses")));
        let (reason, text) = failed(Reason::NoAddress);
        assert_eq!(reason, "SubnetExhausted");
        assert!(text.starts_with("assign addresses") && text.contains("reserve a range"), "{text}");
        assert_eq!(failed(Reason::Quota).0, "InterfaceFull");
        assert_eq!(failed(Reason::Unavailable).0, "AddressesUnchanged");
        let lost_in_use = vec![("192.0.2.1".parse().unwrap(), "pod-1".into())];
        let (reason, text) =
            describe(&NodeReport::Drift(InterfaceDrift { lost_in_use, ..InterfaceDrift::default() }));
        assert_eq!(reason, "AddressLost");
        assert!(text.ends_with("delete these pods: pod-1 (192.0.2.1)"), "{text}");
        let unusable = vec!["10.0.9.0/29".parse().unwrap()];
        let (reason, text) =
            describe(&NodeReport::Drift(InterfaceDrift { unusable, ..InterfaceDrift::default() }));
        assert!(reason == "AddressDrift" && text.contains("not used: 10.0.9.0/29"), "{text}");
        let lost_in_use = vec![("192.0.2.1".parse().unwrap(), "pod-1".into())];
        let unusable = vec!["10.0.9.0/29".parse().unwrap()];
        let drift = InterfaceDrift { lost_in_use, unusable, ..InterfaceDrift::default() };
        let (reason, text) = describe(&NodeReport::Drift(drift));
        assert!(reason == "AddressLost" && text.contains("not used: 10.0.9.0/29"), "{text}");
    }
}
