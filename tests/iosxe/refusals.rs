//! Reasons of a device's refusals.

use staffetta_iosxe_device::{Effect, Ledger};

/// An operation that a device refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) app: &'a str,
    pub(crate) operation: &'a str,
    why: &'a str,
    /// The next event of the app.
    next: Option<&'a Effect>,
}

/// All that a device refused.
pub(crate) fn refusals(ledger: &Ledger) -> Vec<Refusal<'_>> {
    let entries = ledger.entries();
    let mut found = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        if let Effect::Refused(operation, why) = &entry.effect {
            let mut later = entries[place..].iter().filter(|later| later.app == entry.app);
            let next = later.find(|later| !matches!(later.effect, Effect::Refused(..)));
            found.push(Refusal { app: &entry.app, operation, why, next: next.map(|next| &next.effect) });
        }
    }
    found
}

impl Refusal<'_> {
    /// Returns `true` if the refused operation raced with the device's own start: with `start` in the configuration, the
    /// device activates and starts the app by itself, also between the last read of its state and the operation.
    pub(crate) fn met_own_start(&self) -> bool {
        matches!(self.operation, "activate" | "start" | "deactivate" | "uninstall")
            && self.why.ends_with(" by its own start")
    }

    /// Returns `true` if the operation of an earlier controller was still in progress.
    pub(crate) fn repeats(&self) -> bool {
        let same = match self.operation {
            "activate" => matches!(self.next, Some(Effect::Activated)),
            "start" => matches!(self.next, Some(Effect::Started)),
            "stop" => matches!(self.next, Some(Effect::Stopped)),
            "deactivate" => matches!(self.next, Some(Effect::Deactivated)),
            "uninstall" => matches!(self.next, Some(Effect::Uninstalled)),
            _ => false,
        };
        self.is_busy() && same
    }

    /// Returns `true` if the current operation is not complete yet, so that its kind is unknown.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_busy() && self.next.is_none()
    }

    fn is_busy(&self) -> bool {
        self.why.contains("is in progress")
    }
}
