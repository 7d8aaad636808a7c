//! Kubernetes Events on nodes, pods and device descriptions.

use staffetta_handler::{EventNote, Identity};

/// The reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventReason {
    /// The machine behind a node can be reached.
    Reached,
    /// The machine behind a node cannot be reached.
    Unreachable,
    /// A pod waits because the machine behind its node cannot be reached.
    Waits,
    /// A pod runs on its machine.
    Deployed,
    /// A pod was changed: its workload is removed and created again.
    Replaced,
    /// The machine has lost the workload of a pod.
    Lost,
    /// Nothing of a pod is left on its machine.
    Removed,
    /// A machine is removed while it cannot be reached, or replaced by another one: its workloads stay.
    Left,
    /// A pod has a field that its machine does not support, and is left as it is otherwise.
    Unsupported,
}

impl EventReason {
    /// The Event with this reason on an object.
    pub(crate) fn note(self, handler: &'static str, regarding: Identity, text: String) -> EventNote {
        let (reason, warning) = match self {
            Self::Reached => ("MachineReached", false),
            Self::Unreachable => ("MachineUnreachable", true),
            Self::Waits => ("NodeUnreachable", true),
            Self::Deployed => ("Deployed", false),
            Self::Replaced => ("Replaced", false),
            Self::Lost => ("LostByMachine", true),
            Self::Removed => ("Removed", false),
            Self::Left => ("LeftAsItIs", true),
            Self::Unsupported => ("FieldNotSupported", true),
        };
        EventNote { handler, regarding, warning, reason, text }
    }
}

/// Describes the leftovers of so many pods, as far as known.
pub(crate) fn workload_count(known: usize) -> String {
    match known {
        0 => "workloads of this cluster, if any,".to_owned(),
        1 => "workloads of 1 pod".to_owned(),
        pods => format!("workloads of {pods} pods"),
    }
}
