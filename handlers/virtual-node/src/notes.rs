//! What is told at nodes, pods and descriptions of machines where nothing failed for good.

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Note};

use crate::machine::Machine;

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The machine behind a node can be reached.
    Reached,
    /// The machine behind a node cannot be reached.
    Unreachable,
    /// A pod waits because the machine behind its node cannot be reached.
    Waits,
    /// A pod runs on its machine.
    Deployed,
    /// A pod was changed: what runs of it is removed and made anew.
    Replaced,
    /// The machine does not have any more what it had of a pod.
    Lost,
    /// Nothing of a pod is left on its machine.
    Removed,
    /// A machine goes while it cannot be reached, or another one takes its place: what runs there stays.
    Left,
    /// A pod asks for what its machine cannot give it, and is left as it is otherwise.
    Unsupported,
}

impl Told {
    fn reason(self) -> &'static str {
        match self {
            Self::Reached => "MachineReached",
            Self::Unreachable => "MachineUnreachable",
            Self::Waits => "NodeUnreachable",
            Self::Deployed => "Deployed",
            Self::Replaced => "Replaced",
            Self::Lost => "LostByMachine",
            Self::Removed => "Removed",
            Self::Left => "LeftAsItIs",
            Self::Unsupported => "FieldNotSupported",
        }
    }

    fn warning(self) -> bool {
        matches!(self, Self::Unreachable | Self::Waits | Self::Lost | Self::Left | Self::Unsupported)
    }
}

/// The note that the machine behind a node can be reached.
pub(crate) fn reached_note(handler: &'static str, machine: &Machine) -> Note {
    node_note(handler, machine, Told::Reached, "the machine behind this node can be reached".to_owned())
}

/// The note that the machine behind a node cannot be reached.
pub(crate) fn unreachable_note(handler: &'static str, machine: &Machine, why: &str) -> Note {
    let text =
        format!("the machine behind this node cannot be reached; its pods are left as they are: {why}");
    node_note(handler, machine, Told::Unreachable, text)
}

/// What is left behind of so many pods, as far as that is known.
pub(crate) fn rest_of(known: usize) -> String {
    match known {
        0 => "whatever runs there of this cluster".to_owned(),
        1 => "what runs there of 1 pod".to_owned(),
        pods => format!("what runs there of {pods} pods"),
    }
}

/// A note at a node. Its Events bear the name as UID, as those of a kubelet do.
pub(crate) fn node_note(handler: &'static str, machine: &Machine, told: Told, text: String) -> Note {
    let name = machine.name().to_string();
    let regarding = Identity::of::<Node>(None, name.clone(), name);
    Note { handler, regarding, warning: told.warning(), reason: told.reason(), text }
}

/// A note at a pod.
pub(crate) fn pod_note(handler: &'static str, owner: &Owner, told: Told, text: String) -> Note {
    let Owner { namespace, name, uid } = owner.clone();
    let regarding = Identity::of::<Pod>(Some(namespace), name, uid.as_str().to_owned());
    Note { handler, regarding, warning: told.warning(), reason: told.reason(), text }
}

/// A note at the object that describes a machine.
pub(crate) fn description_note(handler: &'static str, regarding: Identity, told: Told, text: String) -> Note {
    Note { handler, regarding, warning: told.warning(), reason: told.reason(), text }
}
