//! Simulated IOS-XE devices that host applications (IOx) over RESTCONF, with the faults of real ones.
//!
//! A [`Site`] has its own thread and clock, and any number of [`Device`]s. Configurations are checked against the YANG module,
//! responses have the forms of the modules, and the [`Ledger`] of a device records what happened to each app.
//!
//! ```
//! use staffetta_iosxe_device::{Fault, Kept, Options, Reachability, Requests, Site, Tls};
//!
//! # fn main() -> std::io::Result<()> {
//! let site = Site::start()?;
//! let device = site.device(Options { tls: Tls::Server, ..Options::default() })?;
//! assert!(device.url().starts_with("https://127.0.0.1:"));
//! // The answer to the second install gets lost, then the device is gone for a while, and then it has forgotten all.
//! device.inject(Requests::any().operation("install").after(1), 1, Fault::CutAfter);
//! device.reach(Reachability::Refuses);
//! device.reboot(Kept::Nothing, std::time::Duration::from_secs(2));
//! assert!(device.ledger().existing().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! The program `staffetta-iosxe-devices` runs a site with a control API ([`Site::control`]); NAME is the name of a device:
//!
//! | request | what it does |
//! |---|---|
//! | `GET /devices` | the devices: [`DeviceAddress`] |
//! | `GET /devices/NAME/apps` | the apps that are configured or installed: [`HostedApp`] |
//! | `GET /devices/NAME/ledger?after=N` | the entries behind number N: [`Entry`] |
//! | `GET /devices/NAME/counts` | what was asked of it: [`Counts`] |
//! | `POST /devices/NAME/faults`, `DELETE` | plans a fault of requests: [`Injection`]; takes all back |
//! | `POST /devices/NAME/installs` | plans how installs go: [`PlannedInstalls`] |
//! | `POST /devices/NAME/reachability` | `"up"`, `"refuses"`, `"hangs"`, `"resets"`: [`Reachability`] |
//! | `POST /devices/NAME/reboot` | [`Reboot`] |

mod account;
mod control;
mod counts;
mod data;
mod fault;
mod iox;
mod ledger;
mod machine;
mod milliseconds;
mod oper;
mod options;
mod plan;
mod restconf;
mod schema;
mod server;
mod view;

pub use control::{DeviceAddress, Injection, PlannedInstalls, Reboot};
pub use counts::Counts;
pub use fault::{Fault, Install, Kept, Reachability, Requests};
pub use ledger::{Effect, Entry, Ledger};
pub use options::{
    Accepted, ArpLists, Empty, ErrorForm, Gone, Narrowed, Options, Resources, StopsTo, Style, Times, Tls,
};
pub use server::{Device, Site};
pub use view::HostedApp;
