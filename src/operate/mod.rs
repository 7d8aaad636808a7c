//! The commands that people run: the command line, plans, and what takes a cluster over or leaves it.

pub mod cleanup;
pub mod cli;
pub mod dry_run;
#[cfg(feature = "network")]
pub mod migrate;
pub mod uninstall;
