//! The metrics of virtual nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::counters::{Counts, STATES};
use crate::machine::Machine;
use crate::node_store::NodeStore;
use crate::reach::Reachability;

/// The phases of pods as label values, in lower case.
const PHASES: [&str; 5] = ["pending", "running", "succeeded", "failed", "unknown"];

/// The current metrics of the virtual nodes of one handler. Each entry consists of the label values and the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualNodeMetrics {
    /// The number of nodes, by the state of their machines.
    pub nodes: Vec<(&'static str, u64)>,
    /// The number of pods on virtual nodes, by phase in lower case.
    pub pods: Vec<(&'static str, u64)>,
    /// The number of reads of machines, by result.
    pub reads: Vec<(&'static str, u64)>,
    /// The number of requests to the kubelet APIs, by kind of request and result.
    pub kubelet_requests: Vec<(&'static str, &'static str, u64)>,
    /// The number of leases of nodes that this process has taken, given up and lost, by change; 0 if replicas do not share
    /// the nodes.
    pub lease_changes: Vec<(&'static str, u64)>,
}

/// A registry of the metrics of virtual nodes, by handler. The registry outlives the handlers, so that the counters
/// continue when this process is elected leader again. Clones share the registry.
#[derive(Clone, Default)]
pub struct VirtualNodeMetricsRegistry(Arc<Mutex<BTreeMap<&'static str, MetricSources>>>);

/// The state of the machine of a node: the device or base that the node represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// The machine can be reached.
    Reached,
    /// The machine was not read yet.
    Untried,
    /// The machine cannot be reached. The text is the error message of the outage.
    Unreachable(String),
}

impl MachineState {
    fn of(machine: &Machine) -> Self {
        match machine.view().reach {
            Reachability::Up { .. } => Self::Reached,
            Reachability::Untried => Self::Untried,
            Reachability::Down(outage) => Self::Unreachable(outage.message),
        }
    }
}

/// The sources of the metrics of one handler: its nodes and its counters.
#[derive(Default)]
struct MetricSources {
    nodes: Weak<NodeStore>,
    counts: Arc<Counts>,
}

impl VirtualNodeMetricsRegistry {
    /// Returns the counters of the handler with this name. A handler that is created again under the same name
    /// continues the counters.
    pub(crate) fn counts(&self, handler: &'static str) -> Arc<Counts> {
        Arc::clone(&self.0.lock().entry(handler).or_default().counts)
    }

    /// Publishes the metrics of `nodes` for the handler with this name. They replace those of the handler's previous instance.
    pub(crate) fn show(&self, handler: &'static str, nodes: &Arc<NodeStore>) {
        self.0.lock().entry(handler).or_default().nodes = Arc::downgrade(nodes);
    }

    /// Returns the name of each node of the handler with this name, and the state of the node's machine; empty while the handler does
    /// not run.
    pub fn machines(&self, handler: &'static str) -> Vec<(String, MachineState)> {
        let nodes = self.0.lock().get(handler).and_then(|shown| shown.nodes.upgrade());
        let machines = nodes.iter().flat_map(|nodes| nodes.all());
        machines.map(|machine| (machine.name.to_string(), MachineState::of(&machine))).collect()
    }

    /// Returns the current metrics of each handler, with its name.
    pub fn values(&self) -> Vec<(&'static str, VirtualNodeMetrics)> {
        self.0.lock().iter().map(|(handler, shown)| (*handler, shown.values())).collect()
    }
}

impl MetricSources {
    /// Returns the current metrics of one handler. After the handler has stopped, because this process is not the leader any more, the
    /// numbers of nodes and pods are 0; the counters keep their values.
    fn values(&self) -> VirtualNodeMetrics {
        let nodes = self.nodes.upgrade();
        let machines = nodes.iter().flat_map(|nodes| nodes.all()).collect::<Vec<_>>();
        let index = nodes.iter().map(|nodes| &nodes.pods);
        let pods = index.flat_map(|index| machines.iter().flat_map(|machine| index.pods_on(&machine.name)));
        VirtualNodeMetrics {
            nodes: count_by(STATES, machines.iter().map(|machine| machine.view().condition())),
            pods: count_by(PHASES, pods.map(|pod| phase(&pod))),
            reads: self.counts.reads(),
            kubelet_requests: self.counts.requests(),
            lease_changes: self.counts.leases(),
        }
    }
}

/// Counts the occurrences of each of `names` in `found`.
fn count_by<const N: usize>(
    names: [&'static str; N],
    found: impl Iterator<Item = &'static str>,
) -> Vec<(&'static str, u64)> {
    let mut counts = names.map(|name| (name, 0));
    for name in found {
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == name) {
            *count += 1;
        }
    }
    counts.into()
}

/// Returns the phase of a pod as a label value, one of [`PHASES`].
fn phase(pod: &k8s_openapi::api::core::v1::Pod) -> &'static str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    PHASES.into_iter().find(|known| known.eq_ignore_ascii_case(phase)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Read, Request, RequestResult};

    #[test]
    fn a_successor_continues_the_counts_of_its_predecessor() {
        let registry = VirtualNodeMetricsRegistry::default();
        for _ in 0..2 {
            registry.counts("machines").read(Read::Refused);
            registry.counts("machines").request(Request::Exec, RequestResult::Unsupported);
        }
        let (_, shown) = registry.values().remove(0);
        assert_eq!(shown.reads, [("success", 0), ("failure", 0), ("refused", 2)]);
        let exec: Vec<_> = shown.kubelet_requests.into_iter().filter(|(.., count)| *count > 0).collect();
        assert_eq!(exec, [("exec", "unsupported", 2)]);
        assert_eq!(shown.nodes, STATES.map(|state| (state, 0)));
    }

    #[test]
    fn a_name_that_is_not_known_is_counted_nowhere_and_the_others_where_they_belong() {
        assert_eq!(count_by(["a", "b"], ["b", "c", "b"].into_iter()), [("a", 0), ("b", 2)]);
    }
}
