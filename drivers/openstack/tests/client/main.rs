//! The client against services that answer as the real ones do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod drivers;
mod login;
mod namespaces;
mod tls;
mod world;
