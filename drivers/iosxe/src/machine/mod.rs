//! The state machine of an application: decides the next step from its observed state, its wanted state, the record of
//! earlier steps and the time. It does no I/O.

mod act;
mod decide;
mod flash;
mod record;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use act::{AppStep, Package, StepLimits};
pub(crate) use decide::{AppView, Busy, Configured, Decision, Goal, POLL, decide};
pub(crate) use record::{AppRecord, Attempt, RefusalKind, UNCERTAIN};
pub(crate) use state::AppState;
