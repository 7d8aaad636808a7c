//! Runs pods on Cisco IOS-XE devices: each container becomes an IOx application, managed over RESTCONF.
//!
//! [`IosXeDrivers`] creates one driver per device. The modules, from the outside in:
//!
//! | module | content |
//! |---|---|
//! | `driver` | the driver of one device: each call reads the device, decides for each container, and takes at most one step each |
//! | `machine` | the state machine of an application: decides the next step from the observed and the wanted state, without I/O |
//! | `app` | the translation of a pod into applications (names, ownership labels, resources, network), or the reason of a refusal |
//! | `observe` | the state of the device, combined from its configuration and its operational data |
//! | `model` | the parts of the YANG modules that this crate uses, as types |
//! | `spec` | the section of a device specification that only this driver has |
//! | `restconf` | requests, responses and errors (RFC 8040), log-in, TLS |
//!
//! The complete state of all pods is on the device: a new process reads the device and continues. The in-memory records
//! (the time and the result of the last steps) only delay repeated steps.

mod app;
mod driver;
mod drivers;
mod machine;
mod model;
mod observe;
mod options;
mod restconf;
mod spec;

pub use drivers::IosXeDrivers;
pub use options::IosXeOptions;
pub use spec::{
    AppGigabitEthernet, InterfaceSpec, InterfaceType, ManagementSpec, Networking, PortMode, VirtualPortGroup,
    VlanInterface, XeSpec,
};
