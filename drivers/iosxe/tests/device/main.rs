//! The driver against a device that knows nothing of it: built from the YANG modules and samples of real devices, it keeps a
//! ledger of what was done to its apps.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod credentials;
mod faults;
mod flash;
mod life;
mod neighbours;
mod oddities;
mod outages;
mod world;
