//! How handlers know what another one keeps.

/// The label of a Node that says which handler keeps it. Other handlers leave the pods of such a node alone: they have the network
/// of the machine that stands for it.
pub const HANDLER_LABEL: &str = "staffetta.dev/handler";
