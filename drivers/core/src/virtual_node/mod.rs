//! Pods on a node that some other machine stands for, whatever that machine is: what it is given, how far it is, what it uses.

mod progress;
mod request;
mod usage;

pub use progress::Progress;
pub use request::{EnvironmentVariable, PodRequest};
pub use usage::{ContainerUsage, PodUsage};
