//! Pods on IOS-XE devices: each container becomes an IOx application, over RESTCONF.
//!
//! [`IosXeDrivers`] makes the drivers, one a device. What happens in one is, from the outside in:
//!
//! | module | what it knows |
//! |---|---|
//! | `driver` | one call: read the device, decide for each container, do at most one step each |
//! | `machine` | the decision: what is there, what is wanted, what was tried when; no input or output |
//! | `app` | what a pod becomes: names, marks, resources, network, or why it cannot be |
//! | `observe` | the state of the device, combined: configuration, operational data, ARP table |
//! | `model` | the parts of the YANG modules that are used, as types |
//! | `restconf` | requests, answers and errors (RFC 8040), log-in, TLS |
//!
//! The device is the only memory. A process that ends at any moment is followed by one that reads the device and goes on;
//! what is kept beside it (when a step was last tried, and why it failed) only spaces the steps.

mod app;
mod driver;
mod drivers;
mod machine;
mod model;
mod observe;
mod options;
mod restconf;

pub use drivers::IosXeDrivers;
pub use options::IosXeOptions;
