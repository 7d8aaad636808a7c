//! The checks of `staffetta check`: of a cluster before an installation, of a running controller, and of
//! external systems.

mod access;
mod installation;
mod rights;
mod running;
mod systems;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use staffetta_handler::{CheckResult, Finding};

use crate::base::version::VERSION;

pub(crate) use installation::{Preset, check_installation};
pub(crate) use rights::rights_of;
pub(crate) use running::Diagnostics;
pub(crate) use systems::check_systems;

/// The time limit of one check.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The findings of all checks, in the order in which they are shown.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CheckReport {
    /// The version of the program that ran the checks.
    pub(crate) version: String,
    /// The identity of the replica that ran the checks. `None` if no handler runs in every replica, so that other replicas have nothing to
    /// check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) one_of: Option<String>,
    pub(crate) checks: Vec<ReportedFinding>,
}

/// A finding of a check, with the category under which it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedFinding {
    pub(crate) category: String,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

impl Default for CheckReport {
    fn default() -> Self {
        Self { version: VERSION.version.to_owned(), one_of: None, checks: Vec::new() }
    }
}

impl CheckReport {
    /// Adds findings of one category, except those that were added before.
    pub(crate) fn add(&mut self, category: &str, findings: impl IntoIterator<Item = Finding>) {
        let category = |finding| ReportedFinding { category: category.to_owned(), finding };
        for finding in findings.into_iter().map(category) {
            if !self.checks.contains(&finding) {
                self.checks.push(finding);
            }
        }
    }

    /// Returns the number of findings with this result.
    pub(crate) fn count(&self, result: CheckResult) -> usize {
        self.checks.iter().filter(|check| check.finding.result == result).count()
    }
}
