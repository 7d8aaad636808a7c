//! The reasons for which a device rejects requests.

use staffetta_iosxe_device::{Effect, Entry, Ledger};

/// An operation that a device refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) app: &'a str,
    pub(crate) operation: &'a str,
    why: &'a str,
    /// The last event of the app before it.
    last: Option<&'a Effect>,
    /// The next event of the app.
    next: Option<&'a Effect>,
}

/// All that a device refused.
pub(crate) fn refusals(ledger: &Ledger) -> Vec<Refusal<'_>> {
    let entries = ledger.entries();
    let mut found = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        if let Effect::Refused(operation, why) = &entry.effect {
            let is_event =
                |other: &&Entry| other.app == entry.app && !matches!(other.effect, Effect::Refused(..));
            let last = entries[..place].iter().rfind(is_event).map(|last| &last.effect);
            let next = entries[place..].iter().find(is_event).map(|next| &next.effect);
            found.push(Refusal { app: &entry.app, operation, why, last, next });
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

    /// Returns `true` if an earlier controller had requested the operation: it was still in progress, or was completed
    /// after the last read of the app's state.
    pub(crate) fn repeats(&self) -> bool {
        let effect = if self.is_busy() { self.next } else { self.last };
        matches!(
            (self.operation, effect),
            ("activate", Some(Effect::Activated))
                | ("start", Some(Effect::Started))
                | ("stop", Some(Effect::Stopped))
                | ("deactivate", Some(Effect::Deactivated))
                | ("uninstall", Some(Effect::Uninstalled))
        )
    }

    /// Returns `true` if the current operation is not complete yet, so that its kind is unknown.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_busy() && self.next.is_none()
    }

    fn is_busy(&self) -> bool {
        self.why.contains("is in progress")
    }
}
