//! A module of a simulated base.

use jiff::Timestamp;

/// A module of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledModule {
    /// The name of the module.
    pub name: String,
    /// The version of the module.
    pub version: String,
    /// The state: RESOLVED while it is being loaded, then ACTIVATED, or DEACTIVATED while another version is active.
    pub state: &'static str,
    /// The time of the last change of the state.
    pub changed: Timestamp,
    /// The reason of the last change.
    pub reason: &'static str,
    /// The message of the last change.
    pub message: String,
}
