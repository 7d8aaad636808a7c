//! `staffetta explain`: the state of one object at each step of the chain, and the remedies for what keeps it from being handled.

use std::io::Write;

use clap::Args;

use super::CommandError;
use super::arguments::OutputArguments;
use super::line::{Colour, StyledLine, TerminalStyle};
use super::object::{ObjectName, is_namespaced, malformed};
use super::request::{AdminClient, RequestError};
use super::status::overview::problem_lines;
use crate::base::health::Condition;
use crate::observe::state::{
    HandlerSummary, InterestSummary, MAX_LIMIT, ObjectSummary, Query, RequestSummary, StateSnapshot,
    duration, full_name, remedy,
};

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// The object: `TYPE/NAME` or `TYPE NAME`, such as `pod/web-1`.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    object: Vec<String>,
    /// The namespace of the object. If not set: the plug-in of kubectl takes that of the context, `staffetta` searches all.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Requests the state of the object from `client` and writes its explanation to `output`.
pub(super) async fn explain(
    arguments: ExplainArguments,
    client: &AdminClient,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let ExplainArguments { object, namespace, output: OutputArguments { format } } = arguments;
    let name = ObjectName::of_words(&object)?.filter(|name| name.kind.is_some());
    let name = name.ok_or_else(|| malformed(&object))?;
    let query =
        Query { limit: Some(MAX_LIMIT), explain: true, ..name.query(namespace, client.default_namespace()) };
    let document = client.state(&query).await?;
    if let Some(reason) = unidentified(&document, &query) {
        let text = format!("cannot find the object without its namespace (-n NAMESPACE): {reason}");
        return Err(CommandError::Usage(text));
    }
    let problems = problems_inside(client, &query).await?;
    let text = || {
        let lines = explanation(&document, &query).into_iter().chain(problems).collect();
        TerminalStyle::of_stdout().untruncated().show(lines)
    };
    Ok(format.write(&document, text, output)?)
}

/// Requests the objects in the namespace that `query` names, and returns the lines about their problems; none if it names another object.
async fn problems_inside(client: &AdminClient, query: &Query) -> Result<Vec<StyledLine>, RequestError> {
    if query.kind.as_deref().is_none_or(|kind| !kind.eq_ignore_ascii_case("namespace")) {
        return Ok(Vec::new());
    }
    let inside = Query { namespace: query.name.clone(), limit: Some(0), ..Query::default() };
    let problems = client.state(&inside).await?.problems;
    let heading = match problems.len() {
        0 => row("objects", "none in this namespace fails or is stuck", Some(Colour::Green)),
        _ => row("objects", "these fail or are stuck in this namespace:", Some(Colour::Red)),
    };
    Ok([heading].into_iter().chain(problem_lines(&problems)).collect())
}

/// Returns the reason why the object of `query` cannot be identified, `None` if it can: `query` has no namespace, and the object could not
/// be read, for example because several namespaces have one of this name. An object whose kind has no namespace is identified by its name.
fn unidentified<'s>(document: &'s StateSnapshot, query: &Query) -> Option<&'s str> {
    let is_open = query.namespace.is_none() && query.kind.as_deref().is_none_or(is_namespaced);
    document.unread.as_deref().filter(|_| is_open)
}

/// Explains the object that `query` names: returns its state at each step of the chain, from the watch to the handlers. The kind is compared
/// case-insensitively; without a watch of it, the explanation lists the kinds that are watched.
fn explanation(document: &StateSnapshot, query: &Query) -> Vec<StyledLine> {
    let kind = query.kind.as_deref().unwrap_or_default();
    let is_kind = |other: &str| other.eq_ignore_ascii_case(kind);
    let watch = document.watches.iter().find(|watch| is_kind(&watch.kind));
    let name = full_name(query.namespace.as_deref(), query.name.as_deref().unwrap_or_default());
    let title = format!("{} {name}", watch.map_or(kind, |watch| &watch.kind));
    let controller = format!("{} ({})", document.identity, document.leadership.role);
    let mut lines = vec![StyledLine::plain(&title), row("controller", &controller, None)];
    lines.extend(document.waits.iter().map(|Condition { name, reason }| {
        let text = format!("{name}: {}", reason.as_deref().unwrap_or_default());
        row("  unmet", &text, Some(Colour::Yellow))
    }));
    let Some(watch) = watch else {
        let kinds: Vec<_> = document.watches.iter().map(|watch| watch.kind.as_str()).collect();
        let text = format!("no enabled handler needs this kind; watched kinds: {}", kinds.join(", "));
        lines.push(row("watch", &text, Some(Colour::Yellow)));
        return lines;
    };
    let listed = if watch.listed { "all objects are listed" } else { "not all objects are listed yet" };
    let heard = watch.silent_seconds.map(|seconds| format!(", last heard {} ago", duration(seconds)));
    let error = watch.error.as_ref().map(|error| format!(", fails: {error}"));
    let state = format!("{listed}{}{}", heard.unwrap_or_default(), error.unwrap_or_default());
    lines.push(row("watch", &state, None));
    if let Some(object) = document.undecodable.first() {
        let text = format!("cannot be decoded, so no handler receives it: {}", object.error);
        lines.push(row("object", &text, Some(Colour::Red)));
        lines.push(row("  remedy", &remedy("ObjectUndecodable").unwrap_or_default().1, None));
        return lines;
    }
    lines.push(if let Some(error) = &document.unread {
        row("object", &format!("is watched, but cannot be read: {error}"), Some(Colour::Red))
    } else if document.known == Some(true) {
        row("object", "is watched", None)
    } else {
        let text = "is not watched: it does not exist, or the selector of the watch leaves it out";
        row("object", text, Some(Colour::Yellow))
    });
    let handlers = document.handlers.iter().filter(|handler| handler.kinds.iter().any(|kind| is_kind(kind)));
    lines.extend(handlers.flat_map(|handler| handler_lines(handler, document)));
    lines
}

/// Returns the lines about one handler: its unmet conditions, its failing background work, the unfinished events of the object (usually
/// none or one), and the reason why the handler does not want the object, or does not do everything for it.
fn handler_lines(handler: &HandlerSummary, document: &StateSnapshot) -> Vec<StyledLine> {
    let HandlerSummary { name, waits, interest, .. } = handler;
    let wait = |wait| row(name, &format!("receives no events yet: {wait}"), Some(Colour::Yellow));
    let mut lines: Vec<_> = waits.iter().map(wait).collect();
    let events: Vec<_> = document.objects.iter().filter(|object| object.handler == *name).collect();
    let background = document.background.iter().filter(|work| work.handler == *name);
    let requests: Vec<_> = background.flat_map(|work| &work.requests).collect();
    if !requests.is_empty() {
        let text = "its work in the background fails; see the Events of the object";
        lines.push(row(name, text, Some(Colour::Yellow)));
        lines.extend(requests.into_iter().map(request_line));
    } else if events.is_empty()
        && waits.is_empty()
        && interest.as_ref().is_some_and(|interest| interest.taken)
    {
        lines.push(row(name, "has handled the object", Some(Colour::Green)));
    }
    lines.extend(events.into_iter().flat_map(event_lines));
    if let Some(InterestSummary { taken, reason: Some(reason) }) = interest {
        let (name, text) = if *taken { ("  but", "") } else { (name.as_str(), "does not take the object: ") };
        lines.push(row(name, &format!("{text}{reason}"), Some(Colour::Yellow)));
    }
    lines
}

/// Returns the lines about one event that a handler has not handled successfully yet: its phase, the failed attempts with the last error, its
/// reason and the remedy, and the last requests.
pub(super) fn event_lines(event: &ObjectSummary) -> Vec<StyledLine> {
    let next = event.next_seconds.map(|next| format!(", next attempt in {}", duration(next)));
    let since = duration(event.since_seconds);
    let state = format!("{} ({}) for {since}{}", event.phase, event.change, next.unwrap_or_default());
    let mut lines = vec![row(&event.handler, &state, Some(Colour::of(event)))];
    lines.extend(event.replica.iter().map(|replica| row("  replica", replica, None)));
    if let Some(error) = &event.last_error {
        let (meaning, remedy) = remedy(&error.reason).unzip();
        let attempts = format!("{} failed, the first {} ago", error.attempts, duration(error.since_seconds));
        let meaning = meaning.map(|meaning| format!(": {meaning}")).unwrap_or_default();
        lines.push(row("  attempts", &attempts, None));
        lines.push(row("  error", &error.error, None));
        lines.push(row("  reason", &format!("{}{meaning}", error.reason), None));
        lines.extend(remedy.map(|remedy| row("  remedy", &remedy, None)));
    }
    lines.extend(event.requests.iter().map(request_line));
    lines
}

/// Returns a line with `name`, padded to 12 characters, and `text` in `colour`.
pub(super) fn row(name: &str, text: &str, colour: Option<Colour>) -> StyledLine {
    StyledLine::plain(&format!("{name:12} ")).then(text, colour)
}

/// Describes a request in one line: `POST /v2.0/ports: 409 after 120 ms, 5s ago (req-7)`.
fn request_line(request: &RequestSummary) -> StyledLine {
    let RequestSummary { method, path, status, answered, request_id, sent_seconds, duration_seconds, .. } =
        request;
    let outcome = match status {
        Some(status) => status.to_string(),
        None if *answered => "answered".to_owned(),
        None => "no answer".to_owned(),
    };
    let id = request_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let milliseconds = (duration_seconds * 1000.0).round();
    let ago = duration(*sent_seconds);
    row("  request", &format!("{method} {path}: {outcome} after {milliseconds} ms, {ago} ago{id}"), None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operate::cli::status::testing::{document, object};

    fn explained(mut document: StateSnapshot, kind: &str) -> String {
        document.known = Some(true);
        document.handlers[0].kinds = vec!["Pod".to_owned()];
        document.watches = serde_json::from_str(
            r#"[{ "kind": "Pod", "listed": true, "objects": 1, "undecodable": 0, "added": 1, "modified": 0, "deleted": 0, "lists": 1,
                "errors": 0, "said": null, "silentSeconds": 2.0, "error": null }]"#,
        )
        .unwrap();
        let query = Query {
            kind: Some(kind.to_owned()),
            namespace: Some("default".to_owned()),
            name: Some("web".to_owned()),
            ..Query::default()
        };
        TerminalStyle::default().show(explanation(&document, &query))
    }

    #[test]
    fn the_way_of_a_failing_object_ends_with_what_would_help() {
        let mut failing = object("web", "failed", 61.0, Some("create a port: the quota is used up"));
        failing.last_error.as_mut().unwrap().reason = "QuotaExceeded".to_owned();
        failing.requests = serde_json::from_str(
            r#"[{ "method": "GET", "path": "/v2.0/subnets/s1", "status": null, "requestId": null,
                "sent": "2026-11-21T14:00:00.000Z", "sentSeconds": 40.0, "durationSeconds": 9.9996 },
                { "method": "POST", "path": "/v2.0/ports", "status": 409, "requestId": "req-7",
                "sent": "2026-11-21T14:00:30.000Z", "sentSeconds": 30.2, "durationSeconds": 0.12 }]"#,
        )
        .unwrap();
        let text = explained(document(vec![failing]), "pod");
        let expected = [
            "Pod default/web",
            "controller   web-1 (leader)",
            "watch        all objects are listed, last heard 2s ago",
            "object       is watched",
            "vif          failed (added) for 1m01s, next attempt in 30s",
            "  attempts   3 failed, the first 1m01s ago",
            "  error      create a port: the quota is used up",
            "  reason     QuotaExceeded: a quota of the project is exhausted",
            "  remedy     raise it, or release resources; the objects are retried",
            "  request    GET /v2.0/subnets/s1: no answer after 10000 ms, 40s ago",
            "  request    POST /v2.0/ports: 409 after 120 ms, 30s ago (req-7)",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn requests_in_the_background_are_shown_with_the_object() {
        let mut document = document(Vec::new());
        document.background = serde_json::from_str(
            r#"[{ "handler": "vif", "requests": [{ "method": "PUBLISH", "path": "a/b", "status": null, "answered": true,
                "requestId": null, "sent": "2026-11-21T14:00:00.000Z", "sentSeconds": 40.0, "durationSeconds": 0.01 }] },
                { "handler": "another", "requests": [] }]"#,
        )
        .unwrap();
        let text = explained(document, "pod");
        let last: Vec<_> = text.lines().rev().take(2).collect();
        let expected = [
            "  request    PUBLISH a/b: answered after 10 ms, 40s ago",
            "vif          its work in the background fails; see the Events of the object",
        ];
        assert_eq!(last, expected);
    }

    #[test]
    fn a_kind_that_nobody_needs_and_a_handler_that_waits_are_reported() {
        let text = explained(document(Vec::new()), "secret");
        assert!(
            text.ends_with("watch        no enabled handler needs this kind; watched kinds: Pod\n"),
            "{text}"
        );
        let mut waiting = document(Vec::new());
        waiting.handlers[0].waits = vec!["the ownership marks are not read yet".to_owned()];
        let text = explained(waiting, "pod");
        assert!(
            text.ends_with("vif          receives no events yet: the ownership marks are not read yet\n"),
            "{text}"
        );
    }

    #[test]
    fn a_handler_that_does_not_take_the_object_says_why_and_another_one_has_handled_it() {
        for (interest, expected) in [
            (json!({ "taken": true, "reason": null }), "vif          has handled the object\n"),
            (
                json!({ "taken": true, "reason": "its class is another one" }),
                "vif          has handled the object\n  but        its class is another one\n",
            ),
            (
                json!({ "taken": false, "reason": "it has no node yet" }),
                "vif          does not take the object: it has no node yet\n",
            ),
        ] {
            let mut document = document(Vec::new());
            document.handlers[0].interest = serde_json::from_value(interest).unwrap();
            let text = explained(document, "pod");
            assert!(text.ends_with(&format!("object       is watched\n{expected}")), "{text}");
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_said_to_be_handled() {
        let mut document = document(Vec::new());
        document.unread = Some("403".to_owned());
        let text = explained(document, "pod");
        assert!(text.ends_with("object       is watched, but cannot be read: 403\n"), "{text}");
    }

    #[test]
    fn an_object_that_cannot_be_read_is_explained_if_it_is_known_which_one_is_meant() {
        let mut document = document(Vec::new());
        document.unread = Some("it exists in several namespaces: blog, shop".to_owned());
        for (kind, namespace, is_unidentified) in
            [("pod", None, true), ("pod", Some("shop"), false), ("node", None, false)]
        {
            let query = Query {
                kind: Some(kind.into()),
                namespace: namespace.map(str::to_owned),
                ..Query::default()
            };
            assert_eq!(unidentified(&document, &query).is_some(), is_unidentified, "{kind} {namespace:?}");
        }
    }

    #[test]
    fn an_object_that_cannot_be_decoded_reaches_no_handler() {
        let mut document = document(Vec::new());
        document.undecodable = serde_json::from_str(
            r#"[{ "kind": "Pod", "namespace": "default", "name": "web", "uid": "u", "error": "no spec" }]"#,
        )
        .unwrap();
        let text = explained(document, "pod");
        assert!(text.contains("cannot be decoded, so no handler receives it: no spec\n"), "{text}");
        assert!(text.contains("  remedy     see the field in the message"), "{text}");
    }
}
