//! Messages for the user of the demo.

use std::time::Duration;

use crate::table::duration;

/// Something to show.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Something happened to an object.
    Object(Happening),
    /// A step of the samples has begun.
    Began(&'static str),
    /// The step that began last has ended.
    Ended(Ending),
    /// A line for the reader.
    Said(String),
    /// Lines that stay in view until there are newer ones: how it ended, and how to go on.
    Stays(String),
}

/// News of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    /// Since the demo began.
    pub(crate) at: Duration,
    pub(crate) kind: &'static str,
    /// Namespace and name.
    pub(crate) object: String,
    pub(crate) what: String,
    /// The object does not exist any more.
    pub(crate) gone: bool,
    /// Since the object was made.
    pub(crate) age: Duration,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) step: &'static str,
    pub(crate) took: Duration,
    /// The reasons of a failure; empty on success.
    pub(crate) reasons: Vec<String>,
}

impl Ending {
    /// The text of the result, without a final line break.
    pub(crate) fn text(&self) -> String {
        let outcome = if self.reasons.is_empty() { "done" } else { "failed" };
        let first = format!("--- {outcome}: {} ({})", self.step, duration(self.took));
        let reasons = self.reasons.iter().map(|reason| format!("    {reason}"));
        std::iter::once(first).chain(reasons).collect::<Vec<_>>().join("\n")
    }
}
