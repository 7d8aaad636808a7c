//! Pods on a virtual node: requests, progress and resource usage.

mod progress;
mod request;
mod usage;

pub use progress::PodProgress;
pub use request::{EnvironmentVariable, PodRequest};
pub use usage::{ContainerUsage, PodUsage};
