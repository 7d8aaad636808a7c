//! Pods as applications that a device hosts. A device is a router, a switch or another machine that runs containers but is not a
//! Kubernetes node.

mod device;
mod driver;
mod drivers;
mod hosted;
mod spec;

pub use device::{DeviceInfo, DeviceResources, ReservedResources};
pub use driver::AppHostingDriver;
pub use drivers::{AppHostingDriverTable, AppHostingDrivers};
pub use hosted::{DeploymentStage, HostedContainer, HostedContainerState, HostedPod, HostedPods};
pub use spec::{DeviceSpec, Password, ResourceLimits, TlsSpec};
