//! The next step for a container on a base.

use std::time::Duration;

use crate::vnode::operation::ContainerAction;

/// The next step for a container.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::vnode) enum ContainerStep {
    /// The container is in the desired state: nothing is to be done.
    Done,
    /// Wait for the base. The text describes the current step, for messages.
    Wait(String),
    /// The last operation failed, or the container is not to be activated or does not stay loaded. Check again after the delay `after`.
    Failing {
        /// The reason of the failure, as one word in CamelCase.
        reason: String,
        /// The message about the failure, for people.
        message: String,
        /// The delay before the next check, which repeats a failed operation.
        after: Duration,
    },
    /// Send this operation (start, activate or stop) to the base now.
    Send(ContainerAction),
}
