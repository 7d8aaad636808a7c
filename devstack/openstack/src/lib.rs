//! Access of tests to a real OpenStack. `devstack/real/openstack` starts the services; this crate contains the functions that
//! tests use.
//!
//! The types: [`RealOpenStack`] finds or starts the services, stops and starts one of them, and counts their requests; [`Tenant`]
//! is a project of one test with its networks, nodes and trunks, and the credentials of a controller in it; [`Agents`] reports
//! ports up as the nodes would; [`Gate`] is a reverse proxy that records requests and injects faults.
//!
//! The crate does not depend on drivers or handlers. Methods panic with the message of the service if they fail.

#![allow(clippy::missing_panics_doc, reason = "every method fails the test where it cannot go on")]

mod agents;
mod api;
mod balancers;
mod calls;
mod gate;
mod login;
mod services;
mod tenant;
mod things;
mod user;

pub use agents::Agents;
pub use calls::{Calls, Count};
pub use gate::{Fault, Gate, Match, Seen};
pub use login::Login;
pub use services::{Hidden, RealOpenStack, Service};
pub use tenant::Tenant;
pub use things::{AddressPair, Balancer, FixedIp, Port, Subnet, Trunk};
pub use user::User;
