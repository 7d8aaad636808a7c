//! Checks of handlers and drivers: those before the program is ready, and those on request, whose findings `kubectl staffetta check`
//! shows.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::failure::HandlerError;

/// A check of a handler, a driver or an external system. It changes nothing.
pub struct Check {
    /// The name of the handler, the driver or the external system, under which the findings are shown.
    pub name: String,
    /// The function that runs the check and returns its findings. An error counts as a failed check.
    pub run: RunCheck,
}

/// The type of a function that runs a check and returns its findings.
type RunCheck = Box<dyn Fn() -> BoxFuture<'static, Result<Vec<Finding>, HandlerError>> + Send + Sync>;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The statement that was checked, such as `Neutron has the extension trunk`.
    pub check: String,
    /// The result of the check.
    pub result: CheckResult,
    /// The actual state, or the error; may be empty if the statement holds.
    pub detail: String,
    /// The action that makes the statement true; empty if it holds.
    pub remedy: String,
}

/// The result of a check, in the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// The statement holds.
    Ok,
    /// The statement does not hold, but the program works nevertheless.
    Warning,
    /// The statement does not hold, and the program cannot work properly until it does.
    Failed,
}

impl Finding {
    /// Returns the finding that the statement `check` holds. `detail` may be empty.
    pub fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check: check.into(), result: CheckResult::Ok, detail: detail.into(), remedy: String::new() }
    }

    /// Returns the finding that the statement `check` does not hold because of `detail`, but that the program works nevertheless.
    pub fn warning(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { result: CheckResult::Warning, ..Self::failed(check, detail, remedy) }
    }

    /// Returns the finding that the statement `check` does not hold because of `detail`, and that the program cannot work properly until it
    /// does.
    pub fn failed(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (check, detail, remedy) = (check.into(), detail.into(), remedy.into());
        Self { check, result: CheckResult::Failed, detail, remedy }
    }
}
