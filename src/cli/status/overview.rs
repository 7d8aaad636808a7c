//! How a controller is at a glance.

use std::fmt::Write;

use super::words::{cut, line, time};
use crate::cli::table::Table;
use crate::state::{Document, Handler, Object, Watch};

/// The whole controller, no line longer than `width` characters.
pub(super) fn overview(document: &Document, width: Option<usize>) -> String {
    let text = whole(document);
    match width {
        None => text,
        Some(width) => text.lines().map(|line| cut(line, width) + "\n").collect(),
    }
}

fn whole(document: &Document) -> String {
    let mut text = head(document);
    if !document.watches.is_empty() {
        let _ = write!(text, "\n{}", watches(&document.watches));
    }
    let _ = write!(text, "\n{}", handlers(&document.handlers));
    if !document.undecodable.is_empty() {
        let _ = write!(text, "\nObjects that cannot be decoded, and that no handler gets to see:\n");
        let mut table = Table::new(["KIND", "NAMESPACE/NAME", "WHY"]);
        for object in &document.undecodable {
            let name = full_name(object.namespace.as_deref(), &object.name);
            table.row([&line(&object.kind), &name, &line(&object.error)]);
        }
        let _ = write!(text, "{table}");
    }
    if document.objects.is_empty() {
        let _ = write!(text, "\n{}\n", nothing(document));
    } else {
        let _ = write!(text, "\n{}", objects(&document.objects));
    }
    if document.omitted > 0 {
        let _ = writeln!(
            text,
            "... and {} more; say which: --namespace, --kind, --handler, --phase",
            document.omitted
        );
    }
    text
}

/// Who it is, and whether it is ready; a line each for what it waits for.
pub(super) fn head(document: &Document) -> String {
    let ready = if document.ready { "ready" } else { "not ready" };
    let Document { version, identity, leadership, uptime_seconds, .. } = document;
    let role = line(&leadership.role);
    let uptime = time(*uptime_seconds);
    let mut text = format!("staffetta {version} on {}: {role}, {ready}, up for {uptime}\n", line(identity));
    for waits in &document.waits {
        let _ = writeln!(text, "  waits: {}: {}", line(&waits.name), line(&waits.reason));
    }
    text
}

/// The name of an object as people write it.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    line(&namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

fn watches(watches: &[Watch]) -> Table<7> {
    let mut table = Table::new(["WATCH", "OBJECTS", "EVENTS", "LISTS", "ERRORS", "SILENT", "LAST ERROR"]);
    for watch in watches {
        let objects = watch.objects.to_string() + if watch.listed { "" } else { "+" };
        let events = (watch.added + watch.modified + watch.deleted).to_string();
        let silent = watch.silent_seconds.map(time).unwrap_or_default();
        let error = watch.error.as_deref().map(line).unwrap_or_default();
        let (lists, errors) = (watch.lists.to_string(), watch.errors.to_string());
        table.row([&line(&watch.kind), &objects, &events, &lists, &errors, &silent, &error]);
    }
    table
}

fn handlers(handlers: &[Handler]) -> Table<7> {
    let mut table = Table::new(["HANDLER", "HELD", "QUEUED", "RUNNING", "RETRYING", "FAILED", "STATE"]);
    for handler in handlers {
        let state =
            if handler.open { "open".to_owned() } else { format!("waits: {}", handler.waits.join("; ")) };
        let counts = [handler.held, handler.queued, handler.running, handler.retrying, handler.failed];
        let [held, queued, running, retrying, failed] = counts.map(|count| count.to_string());
        table.row([&line(&handler.name), &held, &queued, &running, &retrying, &failed, &line(&state)]);
    }
    table
}

fn objects(objects: &[Object]) -> Table<8> {
    let head = ["HANDLER", "KIND", "NAMESPACE/NAME", "STATE", "SINCE", "ATTEMPTS", "NEXT", "LAST ERROR"];
    let mut table = Table::new(head);
    for object in objects {
        let trouble = object.trouble.as_ref();
        table.row([
            &line(&object.handler),
            &line(&object.kind),
            &full_name(object.namespace.as_deref(), &object.name),
            &line(&object.phase),
            // Of one in trouble, since when it is: what it does at the moment began with its last attempt.
            &time(trouble.map_or(object.since_seconds, |trouble| trouble.since_seconds)),
            &trouble.map(|trouble| trouble.attempts.to_string()).unwrap_or_default(),
            &object.next_seconds.map(|next| format!("in {}", time(next))).unwrap_or_default(),
            &trouble.map(|trouble| line(&trouble.error)).unwrap_or_default(),
        ]);
    }
    table
}

/// Why it means nothing that an object is not shown; none where it means that it is handled.
pub(super) fn blind(document: &Document) -> Option<String> {
    let Document { leadership, ready, watches, .. } = document;
    if !leadership.leads {
        let role = line(&leadership.role);
        return Some(format!("This process handles nothing ({role}): ask the one that leads."));
    }
    let all = *ready && watches.iter().all(|watch| watch.listed);
    (!all).then(|| "Not all objects are known yet; see above what it waits for.".to_owned())
}

/// What is said where no object is shown.
fn nothing(document: &Document) -> String {
    if let Some(why) = blind(document) {
        return why;
    }
    let count = |handler: &Handler| {
        handler.held + handler.queued + handler.running + handler.retrying + handler.failed
    };
    match document.handlers.iter().map(count).sum::<usize>() {
        0 => "Every object is handled.".to_owned(),
        events => format!("No object to show; events that are not handled yet: {events} (--all shows them)."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{document, object};
    use super::*;

    #[test]
    fn a_line_is_no_wider_than_the_terminal_and_what_is_too_long_ends_with_an_ellipsis() {
        let document =
            document(vec![object("web", "failed", 61.0, Some("no address is left in 10.10.0.0/16"))]);
        let whole = overview(&document, None);
        let row = "vif      Pod   default/web     failed  1m01s  3         in 30s  no address is left in 10.10.0.0/16";
        assert!(whole.lines().any(|line| line == row), "{whole}");
        for width in [80, 20] {
            let cut = overview(&document, Some(width));
            assert!(cut.lines().all(|line| line.chars().count() <= width), "{cut}");
            assert!(cut.lines().any(|line| line.ends_with('…')), "{cut}");
        }
    }

    #[test]
    fn since_when_an_object_is_stuck_does_not_begin_anew_with_each_attempt() {
        let since = |phase: &str, error: Option<&str>| {
            let mut object = object("web", phase, 2.0, error);
            if let Some(trouble) = &mut object.trouble {
                trouble.since_seconds = 10_800.0;
            }
            let table = objects(&[object]).to_string();
            table.lines().nth(1).unwrap().split_whitespace().nth(4).unwrap().to_owned()
        };
        for phase in ["queued", "running", "retrying", "failed"] {
            assert_eq!((since(phase, Some("no address")), since(phase, None)), ("3h00m".into(), "2s".into()));
        }
    }

    #[test]
    fn who_cannot_know_does_not_say_that_all_is_well() {
        let mut standby = document(Vec::new());
        standby.leadership.leads = false;
        standby.leadership.role = "standby of web-2".into();
        let said = overview(&standby, None);
        assert!(
            said.ends_with("\nThis process handles nothing (standby of web-2): ask the one that leads.\n"),
            "{said}"
        );
        let mut starting = document(Vec::new());
        starting.ready = false;
        assert!(
            overview(&starting, None)
                .ends_with("\nNot all objects are known yet; see above what it waits for.\n")
        );
    }

    #[test]
    fn what_it_waits_for_what_cannot_be_decoded_and_what_is_left_out_is_said() {
        let mut document = document(Vec::new());
        assert!(overview(&document, None).ends_with("\nEvery object is handled.\n"));
        document.handlers[0].queued = 7;
        assert!(overview(&document, None).contains("not handled yet: 7 (--all shows them)"));
        document.omitted = 3;
        document.waits =
            serde_json::from_str(r#"[{ "name": "watch Pod", "reason": "connection\nrefused" }]"#).unwrap();
        document.undecodable = serde_json::from_str(
            r#"[{ "kind": "Pod", "namespace": "default", "name": "odd", "uid": "u", "error": "no spec" }]"#,
        )
        .unwrap();
        let text = overview(&document, None);
        assert!(text.contains("\n  waits: watch Pod: connection refused\n"), "{text}");
        assert!(text.contains("\nPod   default/odd     no spec\n"), "{text}");
        assert!(
            text.ends_with("\n... and 3 more; say which: --namespace, --kind, --handler, --phase\n"),
            "{text}"
        );
    }
}
