//! What to do next with one application. Nothing here sends or waits: what is there, what is wanted, what was tried and the
//! time are passed in.

mod act;
mod decide;
mod flash;
#[cfg(test)]
mod laws;
mod package;
mod state;
#[cfg(test)]
mod tests;
mod track;

pub(crate) use act::{Act, Patience};
pub(crate) use decide::{Busy, Configured, Decision, Goal, View, decide};
pub(crate) use package::Package;
pub(crate) use state::AppState;
pub(crate) use track::{Sort, Track};
