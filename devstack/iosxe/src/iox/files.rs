//! The files on a device, which `copy` adds and `delete` removes. They survive a reboot.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Iox;
use crate::ledger::Effect;

/// The files, and when each is whole.
pub(crate) type Files = BTreeMap<String, Instant>;

/// The device's message about a failed file operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileError(pub(crate) String);

impl Iox {
    /// Begins a copy, which takes its time; the ledger tells of it when it has begun.
    pub(crate) fn copy(&mut self, from: &str, to: &str, now: Instant) -> Result<(), FileError> {
        if !self.exists(from, now) {
            return Err(FileError(format!("%Error opening {from} (No such file or directory)")));
        }
        self.files.insert(to.to_owned(), now + self.options.times.copy);
        self.event_log.enter(now, to, Effect::FileCopied(from.to_owned()));
        Ok(())
    }

    /// Deletes a file. One that is being copied is not there yet, and comes all the same.
    pub(crate) fn delete(&mut self, file: &str, now: Instant) -> Result<(), FileError> {
        if self.files.get(file).is_none_or(|whole| *whole > now) {
            return Err(FileError(format!("%Error deleting {file} (No such file or directory)")));
        }
        self.files.remove(file);
        self.event_log.enter(now, file, Effect::FileDeleted);
        Ok(())
    }
}
