//! The operations on the containers of bases.

use std::sync::Arc;

use staffetta_driver::tunnel::NodeId;
use staffetta_driver::{ContainerKey, Owner};

/// An operation on a container of a base. A repetition after a failure is another operation with the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name of the tunnel.
    pub tunnel: Arc<str>,
    /// The id of the base.
    pub base: NodeId,
    /// The name of the node of the base.
    pub node: Arc<str>,
    /// The pod that requests the operation; `None` if the module is unloaded because no pod has it.
    pub pod: Option<Owner>,
    /// The key of the container.
    pub key: ContainerKey,
    /// The action: start, activate or stop.
    pub action: ContainerAction,
}

/// An action on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerAction {
    /// Load the module and start it.
    Start,
    /// Run the module, which is loaded, in place of its version that runs.
    Activate,
    /// Stop the module and unload it.
    Stop,
}

impl ContainerAction {
    /// Returns the message that the action is in progress, such as `the base starts it`.
    pub(super) fn progress(self) -> &'static str {
        match self {
            Self::Start => "the base starts it",
            Self::Activate => "the base activates it",
            Self::Stop => "the base stops it",
        }
    }

    /// Returns the action as whose answer a tunnel reports the answer to this one.
    pub(super) fn answers_as(self) -> Self {
        if self == Self::Activate { Self::Start } else { self }
    }
}
