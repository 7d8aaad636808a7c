//! The output of `staffetta status` for single objects.

use std::fmt::Write;

use super::overview::head;
use crate::cli::table::single_line;
use crate::state::{ObjectSummary, StateSnapshot, duration, full_name};

/// Returns one line about the controller, followed by each object with all details.
pub(super) fn details(document: &StateSnapshot) -> String {
    let mut text = head(document);
    for object in &document.objects {
        let _ = write!(text, "\n{}", details_of(object));
    }
    for object in &document.undecodable {
        let name = full_name(object.namespace.as_deref(), &object.name);
        let title = format!("{} {name} ({})", object.kind, object.uid);
        let _ = writeln!(text, "\n{}", single_line(&title));
        row(&mut text, "state", "cannot be decoded; not passed to handlers");
        row(&mut text, "error", &object.error);
    }
    if document.objects.is_empty() && document.undecodable.is_empty() {
        let nothing = match document.known {
            Some(false) => "No watched object has that name; check the name, the namespace and the kind.",
            _ => {
                "No work is queued or in progress for that name: the object is handled, or no enabled handler selects it."
            }
        };
        let said = document.incomplete_reason().unwrap_or_else(|| nothing.to_owned());
        let _ = writeln!(text, "\n{}", single_line(&said));
    }
    text
}

/// Returns the details of one object.
fn details_of(object: &ObjectSummary) -> String {
    let name = full_name(object.namespace.as_deref(), &object.name);
    let mut text = single_line(&format!("{} {name} ({})", object.kind, object.uid)) + "\n";
    row(&mut text, "handler", &object.handler);
    if let Some(replica) = &object.replica {
        row(&mut text, "replica", replica);
    }
    row(&mut text, "event", &object.change);
    let since = duration(object.since_seconds);
    row(&mut text, "state", &format!("{}, for {since}, since {}", object.phase, object.since));
    if let (Some(next), Some(seconds)) = (&object.next, object.next_seconds) {
        row(&mut text, "next", &format!("in {}, at {next}", duration(seconds)));
    }
    if let Some(last_error) = &object.last_error {
        let first = format!("the first {} ago, at {}", duration(last_error.since_seconds), last_error.since);
        row(&mut text, "attempts", &format!("{} failed, {first}", last_error.attempts));
        row(&mut text, "reason", &last_error.reason);
        row(&mut text, "error", &last_error.error);
    }
    text
}

/// Appends a line with a name and a value.
fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:8}  {}", single_line(value));
}
