//! The steps in the lifecycle of an application, with their time limits.

use std::time::Duration;

use super::state::AppState;
use crate::options::{IosXeOptions, milliseconds};

/// The source from which the package of an application is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    /// A file that the user has put on the device.
    OnDevice,
    /// A URL, from which the device downloads the package during the install.
    AtUrl,
    /// A copy on the flash, which the device has made from a URL for this controller. The configuration of the application records this.
    Copied,
}

/// A step in the lifecycle of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AppStep {
    /// Writes the configuration of the application, before its install.
    Configure,
    /// Changes the configuration so that the package is installed from a copy on the flash.
    Divert,
    /// Copies the package from its URL to the flash.
    Copy,
    /// Installs the package: from absent to `DEPLOYED`.
    Install,
    /// Reserves the resources: from `DEPLOYED` to `ACTIVATED`.
    Activate,
    /// Starts the container: from `ACTIVATED` or `STOPPED` to `RUNNING`.
    Start,
    /// Stops the container: from `RUNNING` to `STOPPED`.
    Stop,
    /// Releases the resources: from `ACTIVATED` or `STOPPED` to `DEPLOYED`.
    Deactivate,
    /// Removes the package: from `DEPLOYED` to absent. Also cancels an install.
    Uninstall,
    /// Deletes the copy of the package on the flash.
    Discard,
    /// Removes the configuration of the application.
    Remove,
}

impl AppStep {
    /// Returns two texts about the step: the running step, for messages (`installing`), and the reason of its
    /// failure, as a kubelet calls it (`ErrImagePull`).
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Configure => ("configuring", "CreateContainerError"),
            Self::Divert => ("switching to a copy on the flash", "CreateContainerError"),
            Self::Copy => ("copying to the flash", "ErrImagePull"),
            Self::Install => ("installing", "ErrImagePull"),
            Self::Activate => ("activating", "CreateContainerError"),
            Self::Start => ("starting", "RunContainerError"),
            Self::Stop => ("stopping", "KillContainerError"),
            Self::Deactivate => ("deactivating", "KillContainerError"),
            Self::Uninstall => ("uninstalling", "KillContainerError"),
            Self::Discard => ("deleting the copy on the flash", "KillContainerError"),
            Self::Remove => ("removing the configuration", "KillContainerError"),
        }
    }

    /// Returns the running step for messages: `installing`.
    pub(crate) fn doing(self) -> &'static str {
        self.words().0
    }

    /// Returns the reason of a failure of the step, in CamelCase: `ErrImagePull`.
    pub(crate) fn failed(self) -> &'static str {
        self.words().1
    }

    /// Returns `true` for a step that is complete when the device accepts its request, and `false` for one that may still be in progress
    /// then, such as an install.
    pub(crate) fn is_done_when_accepted(self) -> bool {
        matches!(self, Self::Configure | Self::Divert | Self::Discard | Self::Remove)
    }

    /// Returns `true` if an application in this state does not need the step any more: the step leads to this state, or to an earlier one.
    /// Always `true` for a step that does not lead to a state, such as a change of the configuration.
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

/// The time limits of the steps of an application. A step is retried if its effect is not visible in time; an install that takes long is
/// first reported as slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    /// The duration after which an install is reported as slow.
    pub(crate) slow: Duration,
    /// The time limit from the request of an install until the device reports the application in any state.
    pub(crate) appear: Duration,
    /// The time limit of an install, from its request until `DEPLOYED`.
    pub(crate) install: Duration,
    /// The time limit of a copy to the flash.
    pub(crate) copy: Duration,
    /// The time limit of every other step.
    pub(crate) step: Duration,
}

/// The delay after the first failure of a step. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest delay after a failure of a step.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl StepLimits {
    /// Returns the limits for an application whose package has this source. An install from a URL has the limit for
    /// downloads.
    pub(crate) fn of(options: &IosXeOptions, package: Package) -> Self {
        let (slow, download) =
            (milliseconds(options.slow_install_ms), milliseconds(options.download_limit_ms));
        let (appear, install) = match package {
            Package::AtUrl => (download, download),
            Package::OnDevice | Package::Copied => (slow, milliseconds(options.install_limit_ms)),
        };
        Self { slow, appear, install, copy: download, step: milliseconds(options.step_limit_ms) }
    }

    /// Returns the time within which the effect of a step must be visible; that of an install is the appearance of the application.
    pub(crate) fn limit(&self, act: AppStep) -> Duration {
        match act {
            AppStep::Install => self.appear,
            AppStep::Copy => self.copy,
            _ => self.step,
        }
    }

    /// Returns the longest time limit of an install from any source.
    pub(super) fn longest_install(&self) -> Duration {
        self.install.max(self.copy)
    }

    /// Returns the delay before the next attempt after the `tries`th consecutive failure of a step.
    pub(crate) fn pause(tries: u32) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
    }
}
