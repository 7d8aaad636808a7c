//! The operations on the containers of bases, as they are recorded.

use std::fmt;
use std::sync::Arc;

use staffetta_driver::tunnel::{ContainerOperationResponseData, NodeId};
use staffetta_driver::{ContainerKey, Owner};

/// An operation on a container of a base. A repetition after a failure is another operation with the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name of the tunnel.
    pub tunnel: Arc<str>,
    /// The id of the base.
    pub base: NodeId,
    /// The name of the node.
    pub node: Arc<str>,
    /// The pod that requests the operation.
    pub pod: Owner,
    /// The key of the container.
    pub key: ContainerKey,
    /// The action: start or stop.
    pub action: ContainerAction,
}

/// An action on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerAction {
    /// Load the module and start it.
    Start,
    /// Stop the module and unload it.
    Stop,
}

impl ContainerAction {
    /// Returns the action in progress, for people.
    pub(super) fn progress(self) -> &'static str {
        match self {
            Self::Start => "the base starts it",
            Self::Stop => "the base stops it",
        }
    }
}

/// A step in the life of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationStage {
    /// The pod requests the operation: the tunnel is about to be called.
    Asked,
    /// The tunnel has taken the request.
    Sent,
    /// The tunnel did not take the request.
    Refused,
    /// The base answered, or its tunnel reported that it did not answer in time.
    Answered(ContainerOperationResponseData),
    /// Nothing was answered, and a report of the base shows the effect.
    Observed,
    /// Nothing was answered within the time limit.
    TimedOut,
    /// This replica does not look after the base any more: the end of the operation is not known.
    Abandoned,
}

/// The receiver of each step of each operation that a pod requests. It is called with no lock held, and must not block.
#[derive(Clone)]
pub struct OperationLog(Arc<RecordStage>);

/// The type of a function that records a stage of an operation.
type RecordStage = dyn Fn(&Operation, OperationStage) + Send + Sync;

impl OperationLog {
    /// Creates a receiver that calls `record`.
    pub fn new(record: impl Fn(&Operation, OperationStage) + Send + Sync + 'static) -> Self {
        Self(Arc::new(record))
    }

    /// Records a step.
    pub fn record(&self, operation: &Operation, stage: OperationStage) {
        (self.0)(operation, stage);
    }
}

impl Default for OperationLog {
    /// Creates a receiver that drops everything.
    fn default() -> Self {
        Self::new(|_, _| {})
    }
}

impl fmt::Debug for OperationLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperationLog")
    }
}
