//! Kubernetes Events on nodes, pods and `CiscoDevice` objects.

use staffetta_handler::{EventNote, Identity};

use crate::reach::MISDESCRIBED;

/// The reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventReason {
    /// The machine behind a node can be reached again after an outage.
    Reached,
    /// The machine behind a node has become unreachable.
    Unreachable,
    /// The machine behind a node is gone, and its node is removed.
    Gone,
    /// The description of the machine behind a node cannot be used.
    Misdescribed,
    /// A pod waits because the machine behind its node cannot be reached.
    Waits,
    /// A pod was deployed on its machine.
    Deployed,
    /// A deployed pod was changed: its workload is removed and created again.
    Replaced,
    /// The machine has lost the workload of a pod.
    Lost,
    /// The workload of a deleted pod was removed from its machine.
    Removed,
    /// A machine was removed while it was unreachable or had no valid description, or a node was moved to another machine:
    /// workloads may remain on the removed or former machine.
    Left,
    /// A node has no room for a pod: it has as many as it may have.
    OutOfPods,
    /// A pod has a field that its machine does not support. The field is ignored.
    Unsupported,
}

impl EventReason {
    /// Builds the Event with this reason. `regarding` is the object of the Event, `handler` the name of the handler,
    /// and `text` the message.
    pub(crate) fn note(self, handler: &'static str, regarding: Identity, text: String) -> EventNote {
        let (reason, warning) = match self {
            Self::Reached => ("MachineReached", false),
            Self::Unreachable => ("MachineUnreachable", true),
            Self::Gone => ("MachineGone", true),
            Self::Misdescribed => (MISDESCRIBED, true),
            Self::Waits => ("NodeUnreachable", true),
            Self::Deployed => ("Deployed", false),
            Self::Replaced => ("Replaced", false),
            Self::Lost => ("LostByMachine", true),
            Self::Removed => ("Removed", false),
            Self::Left => ("LeftAsItIs", true),
            Self::OutOfPods => ("OutOfpods", true),
            Self::Unsupported => ("FieldNotSupported", true),
        };
        EventNote { handler, regarding, warning, reason, text }
    }
}

/// Formats the number of pods whose workloads remain on a machine, for messages. 0 means that the number is unknown.
pub(crate) fn workload_count(known: usize) -> String {
    match known {
        0 => "workloads of this cluster, if any,".to_owned(),
        1 => "workloads of 1 pod".to_owned(),
        pods => format!("workloads of {pods} pods"),
    }
}
