//! The output of `staffetta status` for single objects.

use super::overview::head;
use crate::cli::line::{Colour, StyledLine};
use crate::state::{ObjectSummary, StateSnapshot, duration, full_name};

/// Returns one line about the controller, followed by each object with all details.
pub(super) fn details(document: &StateSnapshot) -> Vec<StyledLine> {
    let mut lines = head(document);
    for object in &document.objects {
        lines.push(StyledLine::default());
        lines.extend(details_of(object));
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

/// Returns the details of one object.
fn details_of(object: &ObjectSummary) -> Vec<StyledLine> {
    let name = full_name(object.namespace.as_deref(), &object.name);
    let since = duration(object.since_seconds);
    let state = format!("{}, for {since}, since {}", object.phase, object.since);
    let mut lines = vec![
        StyledLine::plain(&format!("{} {name} ({})", object.kind, object.uid)),
        row("handler", &object.handler, None),
    ];
    lines.extend(object.replica.iter().map(|replica| row("replica", replica, None)));
    lines.push(row("event", &object.change, None));
    lines.push(row("state", &state, Some(Colour::of(object))));
    if let (Some(next), Some(seconds)) = (&object.next, object.next_seconds) {
        lines.push(row("next", &format!("in {}, at {next}", duration(seconds)), None));
    }
    if let Some(last_error) = &object.last_error {
        let first = format!("the first {} ago, at {}", duration(last_error.since_seconds), last_error.since);
        lines.push(row("attempts", &format!("{} failed, {first}", last_error.attempts), None));
        lines.push(row("reason", &last_error.reason, None));
        lines.push(row("error", &last_error.error, None));
    }
    lines
}

/// Returns a line with a name and a value.
fn row(name: &str, value: &str, colour: Option<Colour>) -> StyledLine {
    StyledLine::plain(&format!("  {name:8}  ")).then(value, colour)
}
