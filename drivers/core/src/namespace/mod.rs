//! Drivers and observers of namespaces.

mod observer;
mod project;
mod subnet;

pub use self::observer::NamespaceObserver;
pub use self::project::NamespaceProjectDriver;
pub use self::subnet::{NAMESPACE_NETWORK, NamespaceNetwork, NamespaceSubnetDriver};
