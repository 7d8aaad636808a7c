//! What the program tells of itself in figures.

pub mod counter;
pub mod histogram;
mod shard;
