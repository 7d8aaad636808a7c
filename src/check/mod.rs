//! The checks of `staffetta check`: of a cluster before an installation, of a running controller, and of
//! external systems.

mod access;
mod installation;
mod report;
mod rights;
mod running;
mod systems;

use std::time::Duration;

pub(crate) use installation::{Preset, check_installation};
pub(crate) use report::{CheckReport, ReportedFinding};
pub(crate) use rights::rights_of;
pub(crate) use running::Diagnostics;
pub(crate) use systems::check_systems;

/// The time limit of one check.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
