//! The steps in the lifecycle of an application, with their time limits.

use std::time::Duration;

use super::state::AppState;
use crate::options::{IosXeOptions, milliseconds};

/// The source of an application's package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    /// From a file system of the device.
    OnDevice,
    /// From a URL, which the device is to fetch itself.
    AtUrl,
    /// From a copy on the flash, as the configuration says.
    Copied,
}

/// A step in the lifecycle of an application, executed by one request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AppStep {
    Configure,
    /// Reconfigures the application to install from a copy on the flash.
    Divert,
    Copy,
    Install,
    Activate,
    Start,
    Stop,
    Deactivate,
    Uninstall,
    /// Deletes the copy on the flash.
    Discard,
    Remove,
}

impl AppStep {
    /// The ongoing operation, for messages, and the reason of a failure, in CamelCase.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Configure => ("configuring", "ConfigureFailed"),
            Self::Divert => ("switching to a copy on the flash", "ConfigureFailed"),
            Self::Copy => ("copying to the flash", "CopyFailed"),
            Self::Install => ("installing", "InstallFailed"),
            Self::Activate => ("activating", "ActivateFailed"),
            Self::Start => ("starting", "StartFailed"),
            Self::Stop => ("stopping", "StopFailed"),
            Self::Deactivate => ("deactivating", "DeactivateFailed"),
            Self::Uninstall => ("uninstalling", "UninstallFailed"),
            Self::Discard => ("deleting the copy on the flash", "DiscardFailed"),
            Self::Remove => ("removing the configuration", "RemoveFailed"),
        }
    }

    /// The ongoing operation, for messages.
    pub(crate) fn doing(self) -> &'static str {
        self.words().0
    }

    /// The reason of a failure of this step, in CamelCase.
    pub(crate) fn failed(self) -> &'static str {
        self.words().1
    }

    /// Returns `true` if the device answers when the step is complete, rather than when it begins.
    pub(crate) fn is_done_when_accepted(self) -> bool {
        matches!(self, Self::Configure | Self::Divert | Self::Discard | Self::Remove)
    }

    /// Returns `true` if this state is the target of the step, or beyond it.
    pub(crate) fn is_fulfilled_by(self, state: AppState) -> bool {
        use AppState::{Absent, Activated, Deployed, Installing, Running, Stopped};
        match self {
            Self::Copy => matches!(state, Installing | Deployed | Activated | Running | Stopped),
            Self::Install => matches!(state, Deployed | Activated | Running | Stopped),
            Self::Activate => matches!(state, Activated | Running | Stopped),
            Self::Start => state == Running,
            Self::Stop => matches!(state, Stopped | Activated | Deployed | Absent),
            Self::Deactivate => matches!(state, Deployed | Absent),
            Self::Uninstall => state == Absent,
            Self::Configure | Self::Divert | Self::Discard | Self::Remove => true,
        }
    }
}

/// The time limits of steps and the delays before they are retried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    pub(crate) install: Duration,
    /// The limit of a copy to the flash.
    pub(crate) copy: Duration,
    pub(crate) step: Duration,
}

/// The pause after a step that failed; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest such pause.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl StepLimits {
    /// Returns the limits for an application with this source of its package.
    pub(crate) fn of(options: &IosXeOptions, package: Package) -> Self {
        let download = milliseconds(options.download_limit_ms);
        let install =
            if package == Package::AtUrl { download } else { milliseconds(options.install_limit_ms) };
        Self { install, copy: download, step: milliseconds(options.step_limit_ms) }
    }

    /// The time limit of a step.
    pub(crate) fn limit(&self, act: AppStep) -> Duration {
        match act {
            AppStep::Install => self.install,
            AppStep::Copy => self.copy,
            _ => self.step,
        }
    }

    /// The longest time limit of an install, for any source of the package.
    pub(super) fn longest_install(&self) -> Duration {
        self.install.max(self.copy)
    }

    /// The delay after the `tries`th failure of a step.
    pub(crate) fn pause(tries: u32) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
    }
}
