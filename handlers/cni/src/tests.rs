//! Tests of the daemon with a driver in memory.

mod add;
mod delete;
mod forgery;
mod killing;
mod losses;
pub(crate) mod world;
