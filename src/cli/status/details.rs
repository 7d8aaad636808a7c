//! All that is known of single objects.

use std::fmt::Write;

use super::overview::{blind, full_name, head};
use super::words::{line, time};
use crate::state::{Document, Object};

/// The controller in a line, then each object in full.
pub(super) fn details(document: &Document) -> String {
    let mut text = head(document);
    for object in &document.objects {
        let _ = write!(text, "\n{}", one(object));
    }
    for object in &document.undecodable {
        let name = full_name(object.namespace.as_deref(), &object.name);
        let _ = writeln!(text, "\n{} {name} ({})", line(&object.kind), line(&object.uid));
        row(&mut text, "state", "cannot be decoded; no handler gets to see it");
        row(&mut text, "error", &line(&object.error));
    }
    if document.objects.is_empty() && document.undecodable.is_empty() {
        let nothing = match document.known {
            Some(false) => {
                "No watch knows an object of that name: look at the name, the namespace and the kind."
            }
            _ => "Nothing of that name waits or is at work: it is handled, or no handler wants it.",
        };
        let _ = writeln!(text, "\n{}", blind(document).unwrap_or_else(|| nothing.to_owned()));
    }
    text
}

fn one(object: &Object) -> String {
    let name = full_name(object.namespace.as_deref(), &object.name);
    let mut text = format!("{} {name} ({})\n", line(&object.kind), line(&object.uid));
    row(&mut text, "handler", &line(&object.handler));
    row(&mut text, "event", &line(&object.change));
    let phase = format!("{}, for {}, since {}", object.phase, time(object.since_seconds), object.since);
    row(&mut text, "state", &line(&phase));
    if let (Some(next), Some(seconds)) = (&object.next, object.next_seconds) {
        row(&mut text, "next", &line(&format!("in {}, at {next}", time(seconds))));
    }
    if let Some(trouble) = &object.trouble {
        let first = format!("the first {} ago, at {}", time(trouble.since_seconds), trouble.since);
        row(&mut text, "attempts", &line(&format!("{} failed, {first}", trouble.attempts)));
        row(&mut text, "reason", &line(&trouble.reason));
        row(&mut text, "error", &line(&trouble.error));
    }
    text
}

fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:8}  {value}");
}
