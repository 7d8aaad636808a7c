//! A real OpenStack as tests see it. `devstack/real/openstack` starts the services; here is what tests do with them.
//!
//! A map: [`RealOpenStack`] finds or starts the services, stops and starts one of them, and counts what they were asked;
//! [`Tenant`] is a project of a test's own with its networks, nodes and trunks, and the login of a controller that
//! works in it; [`Agents`] report ports up as the nodes would; [`Gate`] is a way to the services on which calls are
//! counted, held back, refused or lost.
//!
//! It knows neither drivers nor handlers. What cannot go on fails the test: methods panic with what the service said.

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
