//! Pods as applications that a device hosts: a router, a switch, anything that runs containers and is no Kubernetes node.

mod device;
mod driver;
mod drivers;
mod hosted;
mod spec;

pub use device::{DeviceInfo, DeviceResources, TakenResources};
pub use driver::AppHostingDriver;
pub use drivers::{AppHostingDrivers, DriverTable};
pub use hosted::{HostedContainer, HostedPod, HostedPods, HostedState, Stage};
pub use spec::{
    AppGigabitEthernet, CredentialSecretRef, DeviceSpec, Effect, Interface, InterfaceType, LogLevel,
    Management, Networking, Password, PortMode, ResourceLimits, Taint, TlsSpec, VirtualPortGroup,
    VlanInterface, XeSpec,
};
