//! The client against services that answer as the real ones do.

mod calls;
mod drivers;
mod login;
mod namespaces;
mod world;
