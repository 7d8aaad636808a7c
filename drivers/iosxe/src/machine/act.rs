//! The steps of an application's life, and how patient one is with each.

use std::time::Duration;

use super::package::Package;
use super::state::AppState;
use crate::options::IosXeOptions;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Configure,
    /// The configuration says from now on that the package is to come from a copy on the flash.
    Divert,
    Copy,
    Install,
    Activate,
    Start,
    Stop,
    Deactivate,
    Uninstall,
    /// The copy on the flash is deleted.
    Discard,
    Remove,
}

impl Act {
    /// What happens meanwhile, for people.
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Configure => "is configured",
            Self::Divert => "is turned to a copy on the flash",
            Self::Copy => "is copied to the flash",
            Self::Install => "is installed",
            Self::Activate => "is activated",
            Self::Start => "is started",
            Self::Stop => "is stopped",
            Self::Deactivate => "is deactivated",
            Self::Uninstall => "is uninstalled",
            Self::Discard => "is deleted from the flash",
            Self::Remove => "is taken out of the configuration",
        }
    }

    /// Whether the device answers when it is done, and not when it begins.
    pub(crate) fn is_done_when_accepted(self) -> bool {
        matches!(self, Self::Configure | Self::Divert | Self::Discard | Self::Remove)
    }

    /// Whether an application in this state has got where the step leads, or beyond.
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

    /// What is wrong when it does not come about, in one word.
    pub(crate) fn failed(self) -> &'static str {
        match self {
            Self::Configure | Self::Divert => "ConfigureFailed",
            Self::Copy => "CopyFailed",
            Self::Install => "InstallFailed",
            Self::Activate => "ActivateFailed",
            Self::Start => "StartFailed",
            Self::Stop => "StopFailed",
            Self::Deactivate => "DeactivateFailed",
            Self::Uninstall => "UninstallFailed",
            Self::Discard => "DiscardFailed",
            Self::Remove => "RemoveFailed",
        }
    }
}

/// How long a step may take, and how long to wait before it is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) install: Duration,
    /// Of a copy to the flash.
    pub(crate) copy: Duration,
    pub(crate) step: Duration,
}

/// The pause after a step that failed; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest such pause.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

impl Patience {
    /// For an application whose package comes from there.
    pub(crate) fn of(options: &IosXeOptions, package: Package) -> Self {
        let download = Duration::from_millis(options.download_limit_ms);
        let install = if package == Package::AtUrl {
            download
        } else {
            Duration::from_millis(options.install_limit_ms)
        };
        Self { install, copy: download, step: Duration::from_millis(options.step_limit_ms) }
    }

    /// How long a step may take before it is tried again.
    pub(crate) fn limit(&self, act: Act) -> Duration {
        match act {
            Act::Install => self.install,
            Act::Copy => self.copy,
            _ => self.step,
        }
    }

    /// How long an install may take wherever its package comes from.
    pub(super) fn longest_install(&self) -> Duration {
        self.install.max(self.copy)
    }

    /// How long to wait after a step that failed for the `tries`th time.
    pub(crate) fn pause(tries: u32) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
    }
}
