//! Tests of the daemon with a driver in memory.

mod add;
mod delete;
mod killing;
pub(crate) mod world;
