//! The way of a package over the flash.
//!
//! A device fetches a package from a URL itself, while it installs it. Some releases do not, or give up on a slow server
//! without a word. Then the device is told to copy the package to its flash first, which it answers when that is done, and to
//! install it from there. That a copy may be there is written into the configuration before it is made, so that whoever
//! removes the application deletes it. A device goes on with a copy although whoever asked for it has ended: one that may still come is
//! waited for.

use tokio::time::Instant;

use super::act::{Act, Patience};
use super::package::Package;
use super::track::{Sort, Track};

/// How often it is tried to delete a copy before it is left where it is.
const DISCARDS: u32 = 5;

/// The next step for an application that is configured, and not there.
pub(super) fn fetch(package: Package, track: &Track) -> Act {
    match package {
        Package::AtUrl if track.url_failed() => Act::Divert,
        Package::Copied if !track.is_copied() => Act::Copy,
        _ => Act::Install,
    }
}

impl Track {
    /// Whether the device cannot install from a URL: it says so, or nothing comes of it.
    pub(super) fn url_failed(&self) -> bool {
        let refusal = self.attempt(Act::Install).and_then(|install| install.refusal.as_ref());
        self.fetch.hung || refusal.is_some_and(|refusal| refusal.sort == Sort::Lasting)
    }

    /// Whether a copy is on the flash, as far as this process knows. One from which no install succeeds is made anew, each time
    /// after twice as many.
    pub(super) fn is_copied(&self) -> bool {
        let install = self.attempt(Act::Install);
        let failed = install.map_or(0, |install| install.tries - u32::from(install.refusal.is_none()));
        self.fetch.copies > 0 && failed < 1_u32.checked_shl(self.fetch.copies).unwrap_or(u32::MAX)
    }

    /// Whether a copy is being made.
    pub(super) fn is_copying(&self) -> bool {
        self.attempt(Act::Copy).is_some_and(|copy| copy.refusal.is_none())
    }

    /// Whether a copy may be on the flash that nobody else would delete.
    pub(crate) fn may_have_copy(&self) -> bool {
        !self.fetch.discarded && (self.fetch.copies > 0 || self.is_copying())
    }

    /// Takes down that a copy is on the flash.
    pub(crate) fn copied(&mut self) {
        self.unsent(Act::Copy);
        if self.fetch.copies == 0 {
            // What came of the URL says nothing of the copy.
            self.unsent(Act::Install);
        }
        (self.fetch.copies, self.fetch.discarded) = (self.fetch.copies + 1, false);
    }

    /// Takes down that nobody knows what became of the copy that was being made.
    pub(crate) fn lost_copy(&mut self) {
        self.fetch.stray = true;
    }

    /// Whether a copy that is not there may still come. A device that was told to copy goes on whoever ends meanwhile, for as long
    /// as a copy may take.
    pub(crate) fn copy_may_come(&self, patience: Patience, now: Instant) -> bool {
        self.fetch.stray && now < self.waiting_since(Act::Copy) + patience.copy
    }

    /// Takes down that no copy is on the flash.
    pub(crate) fn discarded(&mut self) {
        self.fetch.discarded = true;
    }

    /// Whether it was just given up to delete a copy.
    pub(crate) fn leaves_copy(&self, patience: Patience) -> bool {
        !self.fetch.discarded && self.is_discarded(patience)
    }

    /// Whether nothing more is done about a copy: it is gone, or cannot be deleted.
    pub(super) fn is_discarded(&self, patience: Patience) -> bool {
        let discard = self.attempt(Act::Discard).filter(|discard| discard.tries >= DISCARDS);
        let refusal = discard.and_then(|discard| discard.refusal.as_ref());
        self.fetch.discarded || refusal.is_some_and(|refusal| !self.copy_may_come(patience, refusal.at))
    }
}
