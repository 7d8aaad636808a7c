//! Tests of the program as processes, which reach API servers, devices and bases over sockets. They wait more than they compute, and
//! wait at the same time, as one test binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/kubectl.rs"]
mod kubectl;
#[path = "../support/process.rs"]
mod process;

mod end_to_end;
mod faults;
#[cfg(feature = "iosxe")]
mod iosxe;
#[cfg(feature = "koupleless")]
mod koupleless;
mod leadership;
mod life;
