//! The commands that people run: the command line, plans, and those that take a cluster over or leave it.

pub mod cleanup;
pub mod cli;
pub mod dry_run;
#[cfg(feature = "network")]
pub mod migrate;
pub mod uninstall;
