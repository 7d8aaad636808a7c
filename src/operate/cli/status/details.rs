//! The output of `staffetta status` for single objects.

use super::overview::head;
use crate::observe::state::{StateSnapshot, full_name};
use crate::operate::cli::explain::{event_lines, row};
use crate::operate::cli::line::{Colour, StyledLine};

/// Returns lines about the controller (its state and its unmet conditions), followed by each object with all details.
pub(super) fn details(document: &StateSnapshot) -> Vec<StyledLine> {
    let mut lines = head(document);
    for object in &document.objects {
        let name = full_name(object.namespace.as_deref(), &object.name);
        let title = format!("{} {name} ({})", object.kind, object.uid);
        lines.extend([StyledLine::default(), StyledLine::plain(&title)]);
        lines.extend(event_lines(object));
    }
    for object in &document.undecodable {
        let name = full_name(object.namespace.as_deref(), &object.name);
        lines.extend([
            StyledLine::default(),
            StyledLine::plain(&format!("{} {name} ({})", object.kind, object.uid)),
            row("state", "cannot be decoded; not passed to handlers", Some(Colour::Red)),
            row("error", &object.error, None),
        ]);
    }
    if document.objects.is_empty() && document.undecodable.is_empty() {
        let nothing = match document.known {
            Some(false) => "No watched object has that name; check the name, the namespace and the kind.",
            _ => {
                "No work is queued or in progress for that name: the object is handled, or no enabled handler selects it."
            }
        };
        let said = document.incomplete_reason().unwrap_or_else(|| nothing.to_owned());
        lines.extend([StyledLine::default(), StyledLine::plain(&said)]);
    }
    lines
}
