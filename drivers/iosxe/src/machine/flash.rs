//! Installs packages from a copy on the flash.
//!
//! A device fetches a package from a URL itself, while it installs it. Some releases do not, or give up on a slow server
//! without a word. Then the device is requested to copy the package to its flash first, which it answers when that is done, and to
//! install it from there. That a copy may be there is written into the configuration before it is made, so that whoever
//! removes the application deletes it. A device goes on with a copy although the process that requested it has ended: one that may still come is
//! waited for.

use tokio::time::Instant;

use super::act::{AppStep, Package, StepLimits};
use super::track::{AppRecord, RefusalKind};

/// The number of attempts to delete a copy before it is abandoned.
const DISCARDS: u32 = 5;

/// The next step for an application that is configured, and not there.
pub(super) fn fetch(package: Package, track: &AppRecord) -> AppStep {
    match package {
        Package::AtUrl if track.url_failed() => AppStep::Divert,
        Package::Copied if !track.is_copied() => AppStep::Copy,
        _ => AppStep::Install,
    }
}

impl AppRecord {
    /// Returns `true` if the device cannot install from a URL: it reports so, or the install never completes.
    pub(super) fn url_failed(&self) -> bool {
        let refusal = self.attempt(AppStep::Install).and_then(|install| install.refusal.as_ref());
        self.fetch.hung || refusal.is_some_and(|refusal| refusal.kind == RefusalKind::Lasting)
    }

    /// Returns `true` if a copy is on the flash, as far as known. A copy from which installs fail is made again,
    /// after twice as many failures each time.
    pub(super) fn is_copied(&self) -> bool {
        let install = self.attempt(AppStep::Install);
        let failed = install.map_or(0, |install| install.tries - u32::from(install.refusal.is_none()));
        self.fetch.copies > 0 && failed < 1_u32.checked_shl(self.fetch.copies).unwrap_or(u32::MAX)
    }

    /// Returns `true` during a copy.
    pub(super) fn is_copying(&self) -> bool {
        self.attempt(AppStep::Copy).is_some_and(|copy| copy.refusal.is_none())
    }

    /// Returns `true` if a copy that nothing else would delete may be on the flash.
    pub(crate) fn may_have_copy(&self) -> bool {
        !self.fetch.discarded && (self.fetch.copies > 0 || self.is_copying())
    }

    /// Records that a copy is on the flash.
    pub(crate) fn copied(&mut self) {
        self.unsent(AppStep::Copy);
        if self.fetch.copies == 0 {
            // What came of the URL says nothing of the copy.
            self.unsent(AppStep::Install);
        }
        (self.fetch.copies, self.fetch.discarded) = (self.fetch.copies + 1, false);
    }

    /// Records that the result of the copy that was being made is not known.
    pub(crate) fn lost_copy(&mut self) {
        self.fetch.untracked_copy = true;
    }

    /// Returns `true` if a missing copy may still appear: the device continues a copy after its client has gone, up
    /// to the copy's time limit.
    pub(crate) fn copy_may_come(&self, limits: StepLimits, now: Instant) -> bool {
        self.fetch.untracked_copy && now < self.waiting_since(AppStep::Copy) + limits.copy
    }

    /// Records that no copy is on the flash.
    pub(crate) fn discarded(&mut self) {
        self.fetch.discarded = true;
    }

    /// Returns `true` if the deletion of a copy was just abandoned.
    pub(crate) fn leaves_copy(&self, limits: StepLimits) -> bool {
        !self.fetch.discarded && self.is_discarded(limits)
    }

    /// Returns `true` if nothing more is done about the copy: it is deleted, or cannot be.
    pub(super) fn is_discarded(&self, limits: StepLimits) -> bool {
        let discard = self.attempt(AppStep::Discard).filter(|discard| discard.tries >= DISCARDS);
        let refusal = discard.and_then(|discard| discard.refusal.as_ref());
        self.fetch.discarded || refusal.is_some_and(|refusal| !self.copy_may_come(limits, refusal.at))
    }
}
