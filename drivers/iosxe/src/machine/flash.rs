//! Decides about installing packages from a copy on the flash.
//!
//! Usually a device downloads a package from its URL during the install. Some releases cannot, or give up on a slow
//! server without an error. Then the driver makes the device copy the package to its flash first, and install it from
//! there.
//!
//! Before the copy is made, the configuration of the application records that there may be one, so that any later
//! process that removes the application deletes the copy too. The device continues a copy even if the process that
//! requested it has ended, so the removal waits for a copy that may still appear.

use tokio::time::Instant;

use super::act::{AppStep, Package, StepLimits};
use super::record::{AppRecord, RefusalKind};

/// The number of attempts to delete the copy of a package, after which the copy is left on the flash.
const MAX_DISCARDS: u32 = 5;

/// Returns the next step of an application that is configured and not installed: an install, a copy of its package to
/// the flash before it, or the change of the configuration before that copy.
pub(super) fn fetch(package: Package, record: &AppRecord) -> AppStep {
    match package {
        Package::AtUrl if record.url_failed() => AppStep::Divert,
        Package::Copied if !record.is_copied() => AppStep::Copy,
        _ => AppStep::Install,
    }
}

impl AppRecord {
    /// Returns `true` if the device cannot install from the URL: the install was refused or failed in a way that a retry would repeat, or
    /// it was cancelled because the download did not end within its time limit.
    pub(super) fn url_failed(&self) -> bool {
        let refusal = self.attempt(AppStep::Install).and_then(|install| install.refusal.as_ref());
        self.fetch.download_timed_out || refusal.is_some_and(|refusal| refusal.kind == RefusalKind::Lasting)
    }

    /// Returns `true` if a usable copy is on the flash, as far as this process knows. After 2, 4, 8, ... failed
    /// installs in total, the copy counts as unusable and is made again.
    pub(super) fn is_copied(&self) -> bool {
        let install = self.attempt(AppStep::Install);
        let failed = install.map_or(0, |install| install.tries - u32::from(install.refusal.is_none()));
        self.fetch.copies > 0 && failed < 1_u32.checked_shl(self.fetch.copies).unwrap_or(u32::MAX)
    }

    /// Returns `true` if a copy of the package to the flash was requested and its result is not known yet.
    pub(super) fn is_copying(&self) -> bool {
        self.attempt(AppStep::Copy).is_some_and(|copy| copy.refusal.is_none())
    }

    /// Returns `true` if a copy of the package may be on the flash that this controller has not deleted.
    pub(crate) fn may_have_copy(&self) -> bool {
        !self.fetch.discarded && (self.fetch.copies > 0 || self.is_copying())
    }

    /// Records that the device has copied the package to its flash.
    pub(crate) fn copied(&mut self) {
        self.unsent(AppStep::Copy);
        if self.fetch.copies == 0 {
            // Failures of the install from the URL do not count for the copy.
            self.unsent(AppStep::Install);
        }
        (self.fetch.copies, self.fetch.discarded) = (self.fetch.copies + 1, false);
    }

    /// Records that the response to the request of a copy was lost, so that the device may still be copying.
    pub(crate) fn lost_copy(&mut self) {
        self.fetch.untracked_copy = true;
    }

    /// Returns `true` if a copy may still appear on the flash: the device continues a copy whose requester has gone, up
    /// to the time limit of a copy.
    pub(crate) fn copy_may_come(&self, limits: StepLimits, now: Instant) -> bool {
        self.fetch.untracked_copy && now < self.waiting_since(AppStep::Copy) + limits.copy
    }

    /// Records that no copy of the package is on the flash any more.
    pub(crate) fn discarded(&mut self) {
        self.fetch.discarded = true;
    }

    /// Returns `true` if all attempts to delete the copy of the package have failed, so that it is left on the flash.
    pub(crate) fn leaves_copy(&self, limits: StepLimits) -> bool {
        !self.fetch.discarded && self.is_discarded(limits)
    }

    /// Returns `true` if the copy needs no further step: it is deleted, or too many attempts to delete it have failed.
    pub(super) fn is_discarded(&self, limits: StepLimits) -> bool {
        let discard = self.attempt(AppStep::Discard).filter(|discard| discard.tries >= MAX_DISCARDS);
        let refusal = discard.and_then(|discard| discard.refusal.as_ref());
        self.fetch.discarded || refusal.is_some_and(|refusal| !self.copy_may_come(limits, refusal.at))
    }
}
