//! What virtual nodes tell of themselves in figures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::figures::{Counts, STATES};
use crate::shared::Shared;

/// The phases of pods.
const PHASES: [&str; 5] = ["pending", "running", "succeeded", "failed", "unknown"];

/// The figures of the virtual nodes of one handler at this moment, each beside the values of its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualNodeFigures {
    /// Nodes, by how the machine behind each is.
    pub nodes: Vec<(&'static str, u64)>,
    /// Pods on them, by their phase.
    pub pods: Vec<(&'static str, u64)>,
    /// Reads of machines, by what came of them.
    pub reads: Vec<(&'static str, u64)>,
    /// Requests to the kubelet APIs, by what was asked for and what was answered.
    pub kubelet_requests: Vec<(&'static str, &'static str, u64)>,
}

/// Where virtual nodes show their figures, by handler. It outlives them: where a process leads more than once, counts go on. A copy is a
/// reference.
#[derive(Clone, Default)]
pub struct FigureBoard(Arc<Mutex<BTreeMap<&'static str, Shown>>>);

struct Shown {
    nodes: Weak<Shared>,
    counts: Arc<Counts>,
}

impl FigureBoard {
    /// These nodes are shown from now on instead of those that the same handler showed before.
    pub(crate) fn show(&self, nodes: &Arc<Shared>) {
        let shown = Shown { nodes: Arc::downgrade(nodes), counts: Arc::clone(&nodes.counts) };
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = board.insert(nodes.handler, shown) {
            nodes.counts.take_over(&before.counts);
        }
    }

    /// The figures of each handler.
    pub fn figures(&self) -> Vec<(&'static str, VirtualNodeFigures)> {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.iter().map(|(handler, shown)| (*handler, shown.figures())).collect()
    }
}

impl Shown {
    fn figures(&self) -> VirtualNodeFigures {
        let nodes = self.nodes.upgrade();
        let machines = nodes.iter().flat_map(|nodes| nodes.fleet.all()).collect::<Vec<_>>();
        let pods = nodes.iter().flat_map(|nodes| {
            machines.iter().flat_map(|machine| nodes.cluster.pods_on(machine.name())).map(|pod| phase(&pod))
        });
        VirtualNodeFigures {
            nodes: tally(STATES, machines.iter().map(|machine| machine.condition())),
            pods: tally(PHASES, pods),
            reads: self.counts.reads(),
            kubelet_requests: self.counts.requests(),
        }
    }
}

/// How often each of `names` is in `found`.
fn tally<const N: usize>(
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

fn phase(pod: &k8s_openapi::api::core::v1::Pod) -> &'static str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    PHASES.into_iter().find(|known| known.eq_ignore_ascii_case(phase)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Answered, Read, Request};

    #[test]
    fn who_takes_over_goes_on_with_the_counts_of_the_one_before() {
        let (before, after) = (Counts::default(), Counts::default());
        before.read(Read::Refused);
        before.asked(Request::Exec, Answered::Unsupported);
        after.asked(Request::Exec, Answered::Unsupported);
        after.take_over(&before);
        let shown = Shown { nodes: Weak::new(), counts: Arc::new(after) }.figures();
        assert_eq!(shown.reads, [("success", 0), ("failure", 0), ("refused", 1)]);
        let exec: Vec<_> = shown.kubelet_requests.into_iter().filter(|(.., count)| *count > 0).collect();
        assert_eq!(exec, [("exec", "unsupported", 2)]);
        assert_eq!(shown.nodes, STATES.map(|state| (state, 0)));
    }

    #[test]
    fn a_name_that_is_not_known_is_counted_nowhere_and_the_others_where_they_belong() {
        assert_eq!(tally(["a", "b"], ["b", "c", "b"].into_iter()), [("a", 0), ("b", 2)]);
    }
}
