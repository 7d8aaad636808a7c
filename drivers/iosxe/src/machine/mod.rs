//! Decides the next step of one application, without I/O: the observed and wanted states, the record of attempts and
//! the time are arguments.

mod act;
mod decide;
mod flash;
mod state;
#[cfg(test)]
mod tests;
mod track;

pub(crate) use act::{AppStep, Package, StepLimits};
pub(crate) use decide::{AppView, Busy, Configured, Decision, Goal, decide};
pub(crate) use state::AppState;
pub(crate) use track::{AppRecord, RefusalKind};
