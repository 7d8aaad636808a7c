//! The overview of a controller: its watches, handlers and objects.

use super::rates::Rates;
use crate::base::health::Condition;
use crate::observe::state::{
    HandlerSummary, ObjectSummary, PhaseName, Problem, Query, StateSnapshot, WatchSummary, duration,
    full_name,
};
use crate::operate::cli::line::{Colour, StyledLine};
use crate::operate::cli::table::TextTable;

/// The columns of the tables in an overview.
pub(in crate::operate::cli) enum Columns<'s> {
    /// The most important columns.
    Narrow,
    /// All columns, which include the UID and the event of each object.
    Wide,
    /// The most important columns, and the rates of the events and the attempts.
    Rates(Rates<'s>),
    /// The most important columns, and no table of the objects, because they are too many to read.
    Problems,
}

/// Returns the overview of the controller: its readiness, problems, watches, handlers and the objects that `query` selects. `hidden` is the number of
/// selected objects that were removed, because they neither fail nor are stuck.
pub(in crate::operate::cli) fn overview(
    document: &StateSnapshot,
    columns: &Columns<'_>,
    query: &Query,
    hidden: usize,
) -> Vec<StyledLine> {
    let mut lines = head(document);
    lines.extend(problem_lines(&document.problems));
    if !document.watches.is_empty() {
        lines.push(StyledLine::default());
        lines.extend(watches(&document.watches, columns).lines());
    }
    lines.push(StyledLine::default());
    lines.extend(handlers(&document.handlers, columns).lines());
    lines.push(StyledLine::default());
    lines.extend(undecodable(document));
    if let Columns::Problems = columns {
        let count = document.failing_and_stuck();
        let text = format!(
            "{count} objects fail or are stuck; list them with --all, or select with --namespace, --kind, --handler or --phase"
        );
        lines.push(StyledLine::default().then(&text, Some(Colour::Red)));
        return lines;
    }
    if document.objects.is_empty() {
        lines.push(no_objects(document, query, hidden));
    } else {
        lines.extend(objects(&document.objects, columns).lines());
    }
    if document.omitted > 0 {
        let hint = match columns {
            Columns::Rates(_) => "",
            _ => "; select with --namespace, --kind, --handler or --phase",
        };
        lines.push(StyledLine::plain(&format!("... and {} more{hint}", document.omitted)));
    }
    lines
}

/// Returns the identity, role and readiness of the controller, and a line for each unmet condition.
pub(super) fn head(document: &StateSnapshot) -> Vec<StyledLine> {
    let unmet = document.waits.iter().map(|Condition { name, reason }| {
        let reason = reason.as_deref().unwrap_or_default();
        StyledLine::default().then(&format!("  unmet: {name}: {reason}"), Some(Colour::Yellow))
    });
    [title(document)].into_iter().chain(unmet).collect()
}

/// Returns two lines for each problem: its reason, its objects and an example, and what would help.
pub(in crate::operate::cli) fn problem_lines(problems: &[Problem]) -> impl Iterator<Item = StyledLine> {
    problems.iter().flat_map(|problem| {
        let Problem { reason, handler, objects, since_seconds, example, error, remedy, .. } = problem;
        let objects = if *objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") };
        let error = error.as_deref().unwrap_or("no error yet");
        let age = duration(*since_seconds);
        let text = format!(": {objects} of {handler} for {age}, such as {example}: {error}");
        let line = StyledLine::plain("  ").then(reason, Some(Colour::Red)).then(&text, None);
        let remedy = remedy.iter().map(|remedy| StyledLine::plain(&format!("    remedy: {remedy}")));
        [line].into_iter().chain(remedy)
    })
}

/// Returns the identity, role and readiness of the controller, which are the first line of the overview.
pub(in crate::operate::cli) fn title(document: &StateSnapshot) -> StyledLine {
    let StateSnapshot { version, identity, leadership, uptime_seconds, .. } = document;
    let (ready, colour) =
        if document.ready { ("ready", Colour::Green) } else { ("not ready", Colour::Yellow) };
    let title = StyledLine::plain(&format!("staffetta {version} on {identity}: {}, ", leadership.role));
    let title =
        title.then(ready, Some(colour)).then(&format!(", up for {}", duration(*uptime_seconds)), None);
    match document.queued_events() {
        0 => title,
        waiting => title.then(&format!(", {waiting} waiting"), Some(Colour::Yellow)),
    }
}

/// Returns the table of the watches. A `+` after the number of objects says that the first list is not complete yet.
fn watches(watches: &[WatchSummary], columns: &Columns<'_>) -> TextTable<7> {
    let heading = if let Columns::Rates(_) = columns { "EVENTS/S" } else { "EVENTS" };
    let mut table = TextTable::new(["WATCH", "OBJECTS", heading, "LISTS", "ERRORS", "SILENT", "LAST ERROR"]);
    for watch in watches {
        let objects = watch.objects.to_string() + if watch.listed { "" } else { "+" };
        let events = match columns {
            Columns::Rates(rates) => rates.events(&watch.kind),
            _ => watch.events().to_string(),
        };
        let silent = watch.silent_seconds.map(duration).unwrap_or_default();
        let error = watch.error.as_deref().unwrap_or_default();
        let (lists, errors) = (watch.lists.to_string(), watch.errors.to_string());
        table.row([&watch.kind, &objects, &events, &lists, &errors, &silent, error]);
        table.paint(6, Colour::Red);
    }
    table
}

/// Returns the table of the handlers, with the number of events in each phase. The last column is `open` if the handler receives events,
/// otherwise it shows the conditions that the handler waits for.
fn handlers(handlers: &[HandlerSummary], columns: &Columns<'_>) -> TextTable<8> {
    let heading = if let Columns::Rates(_) = columns { "ATTEMPTS/S" } else { "" };
    let head = ["HANDLER", heading, "HELD", "QUEUED", "RUNNING", "RETRYING", "FAILED", "STATE"];
    let mut table = TextTable::new(head);
    for handler in handlers {
        let attempts = match columns {
            Columns::Rates(rates) => rates.attempts(&handler.name),
            _ => String::new(),
        };
        let counts = PhaseName::ALL.map(|phase| handler.counts.get(&phase).copied().unwrap_or_default());
        let [held, queued, running, retrying, failed] = counts.map(|count| count.to_string());
        let (state, colour) = if handler.open {
            ("open".to_owned(), Colour::Green)
        } else {
            (format!("waits: {}", handler.waits.join("; ")), Colour::Yellow)
        };
        table.row([&handler.name, &attempts, &held, &queued, &running, &retrying, &failed, &state]);
        let [.., retrying, failed] = counts;
        if retrying > 0 {
            table.paint(5, Colour::Yellow);
        }
        if failed > 0 {
            table.paint(6, Colour::Red);
        }
        table.paint(7, colour);
    }
    table
}

/// Returns the table of the objects that cannot be decoded, with a line above and an empty line below; nothing without such objects.
fn undecodable(document: &StateSnapshot) -> Vec<StyledLine> {
    if document.undecodable.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(["KIND", "NAMESPACE/NAME", "WHY"]);
    for object in &document.undecodable {
        let name = full_name(object.namespace.as_deref(), &object.name);
        table.row([&object.kind, &name, &object.error]);
    }
    let title = StyledLine::plain("Objects that cannot be decoded and are not passed to handlers:");
    [title].into_iter().chain(table.lines()).chain([StyledLine::default()]).collect()
}

/// Returns the table of the objects that are not handled yet. In the wide form, namespace and name have columns of their own.
fn objects(objects: &[ObjectSummary], columns: &Columns<'_>) -> TextTable<11> {
    let is_wide = matches!(columns, Columns::Wide);
    let [namespace, name, uid, event] =
        if is_wide { ["NAMESPACE", "NAME", "UID", "EVENT"] } else { ["NAMESPACE/NAME", "", "", ""] };
    let mut table = TextTable::new([
        "HANDLER",
        "KIND",
        namespace,
        name,
        uid,
        event,
        "STATE",
        "SINCE",
        "ATTEMPTS",
        "NEXT",
        "LAST ERROR",
    ]);
    for object in objects {
        let ObjectSummary { handler, kind, namespace, name, uid, change, phase, .. } = object;
        let full_name = full_name(namespace.as_deref(), name);
        let [namespace, name, uid, event] = if is_wide {
            [namespace.as_deref().unwrap_or_default(), name, uid, change]
        } else {
            [full_name.as_str(), "", "", ""]
        };
        let since = duration(object.age_seconds());
        let next = object.next_seconds.map(|next| format!("in {}", duration(next))).unwrap_or_default();
        let (attempts, error) = match &object.last_error {
            None => (String::new(), String::new()),
            Some(last) if is_wide => (last.attempts.to_string(), format!("{}: {}", last.reason, last.error)),
            Some(last) => (last.attempts.to_string(), last.error.clone()),
        };
        table.row([handler, kind, namespace, name, uid, event, phase, &since, &attempts, &next, &error]);
        table.paint(6, Colour::of(object));
    }
    table
}

/// Returns the line that is shown instead of an empty list of the objects that `query` selects, of which `hidden` were removed.
fn no_objects(document: &StateSnapshot, query: &Query, hidden: usize) -> StyledLine {
    if let Some(why) = document.incomplete_reason() {
        return StyledLine::default().then(&why, Some(Colour::Yellow));
    }
    let text = if hidden > 0 {
        let queued = hidden + document.omitted;
        format!("No failing or stuck object. Queued events: {queued} (--all shows them).")
    } else if query.handler.is_some() || !query.selects_all_objects() {
        "No selected object is queued, in progress or failing.".to_owned()
    } else if document.undecodable.is_empty() {
        "Every object is handled.".to_owned()
    } else {
        "Every other object is handled.".to_owned()
    };
    StyledLine::default().then(&text, Some(Colour::Green))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{document, object};
    use super::*;
    use crate::operate::cli::line::TerminalStyle;

    /// Returns the overview without colours.
    fn overview(document: &StateSnapshot, width: Option<usize>) -> String {
        let lines = super::overview(document, &Columns::Narrow, &Query::default(), 0);
        TerminalStyle { width, colours: false }.show(lines)
    }

    #[test]
    fn what_fails_is_red_what_waits_is_yellow_and_what_is_fine_is_green() {
        let mut document = document(vec![
            object("failing", "failed", 61.0, Some("no address")),
            object("stuck", "running", 61.0, None),
            object("waiting", "queued", 1.0, None),
        ]);
        document.handlers[0].counts.insert(PhaseName::Failed, 1);
        let text = TerminalStyle { width: None, colours: true }.show(super::overview(
            &document,
            &Columns::Narrow,
            &Query::default(),
            0,
        ));
        for part in [
            "\x1b[32mready\x1b[0m",
            "\x1b[31m1\x1b[0m",
            "\x1b[32mopen\x1b[0m",
            "\x1b[31mfailed\x1b[0m",
            "\x1b[31mrunning\x1b[0m",
            "\x1b[33mqueued\x1b[0m",
        ] {
            assert!(text.contains(part), "{part:?} in {text:?}");
        }
        let plain = text.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[33m", "");
        assert_eq!(plain.replace("\x1b[0m", ""), overview(&document, None), "colours take no room");
    }

    #[test]
    fn lines_that_are_wider_than_the_terminal_end_with_an_ellipsis() {
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
    fn many_objects_are_two_lines_for_each_reason() {
        let mut document = document(vec![object("web", "failed", 61.0, Some("no address"))]);
        document.handlers[0].counts.insert(PhaseName::Failed, 2000);
        document.problems = serde_json::from_value(serde_json::json!([
            { "reason": "QuotaExceeded", "handler": "vif", "objects": 1999, "since": "", "sinceSeconds": 185.0,
              "example": "Pod shop/web-1", "error": "no port is left", "remedy": "raise it" },
            { "reason": "held", "handler": "lb", "objects": 1, "since": "", "sinceSeconds": 6.0,
              "example": "Service shop/web" },
        ]))
        .unwrap();
        let lines = super::overview(&document, &Columns::Problems, &Query::default(), 0);
        let text = TerminalStyle::default().show(lines);
        let said: Vec<_> = text.lines().collect();
        assert!(said[0].ends_with(", ready, up for 1h02m, 2000 waiting"), "{text}");
        assert_eq!(
            said[1..4],
            [
                "  QuotaExceeded: 1999 objects of vif for 3m05s, such as Pod shop/web-1: no port is left",
                "    remedy: raise it",
                "  held: 1 object of lb for 6s, such as Service shop/web: no error yet",
            ]
        );
        assert!(text.contains("2000 objects fail or are stuck; list them with --all"), "{text}");
        assert!(!text.contains("default/web") && said.len() <= 15, "{text}");
    }

    #[test]
    fn the_age_of_a_failure_does_not_start_anew_with_each_attempt() {
        let since = |phase: &str, error: Option<&str>| {
            let mut object = object("web", phase, 2.0, error);
            if let Some(last_error) = &mut object.last_error {
                last_error.since_seconds = 10_800.0;
            }
            let table = objects(&[object], &Columns::Narrow).to_string();
            table.lines().nth(1).unwrap().split_whitespace().nth(4).unwrap().to_owned()
        };
        for phase in ["queued", "running", "retrying", "failed"] {
            assert_eq!((since(phase, Some("no address")), since(phase, None)), ("3h00m".into(), "2s".into()));
        }
    }

    #[test]
    fn a_standby_and_a_starting_controller_do_not_report_that_every_object_is_handled() {
        let mut standby = document(Vec::new());
        standby.leadership.leads = false;
        standby.leadership.role = "standby of web-2".into();
        standby.handlers[0].open = false;
        let said = overview(&standby, None);
        assert!(
            said.ends_with(
                "\nThis process is not the leader (standby of web-2) and handles no objects; query the leader.\n"
            ),
            "{said}"
        );
        standby.handlers[0].open = true;
        let said = overview(&standby, None);
        assert!(said.contains("is not the leader (standby of web-2) and handles vif only; query"), "{said}");
        let mut starting = document(Vec::new());
        starting.ready = false;
        assert!(
            overview(&starting, None)
                .ends_with("\nNot all objects are known yet; see the unmet conditions above.\n")
        );
    }

    #[test]
    fn unmet_conditions_undecodable_objects_and_omitted_objects_are_shown() {
        let mut document = document(Vec::new());
        assert!(overview(&document, None).ends_with("\nEvery object is handled.\n"));
        document.handlers[0].counts.insert(PhaseName::Queued, 7);
        let (any, shop) = (Query::default(), Query { namespace: Some("shop".into()), ..Query::default() });
        let text = |query, hidden| {
            TerminalStyle::default().show(super::overview(&document, &Columns::Narrow, query, hidden))
        };
        assert!(text(&any, 7).contains("Queued events: 7 (--all shows them)"));
        assert!(text(&shop, 0).ends_with("\nNo selected object is queued, in progress or failing.\n"));
        document.omitted = 3;
        document.waits =
            serde_json::from_str(r#"[{ "name": "watch Pod", "reason": "connection\nrefused" }]"#).unwrap();
        document.undecodable = serde_json::from_str(
            r#"[{ "kind": "Pod", "namespace": "default", "name": "odd", "uid": "u", "error": "no spec" }]"#,
        )
        .unwrap();
        let text = overview(&document, None);
        assert!(text.contains("\n  unmet: watch Pod: connection refused\n"), "{text}");
        assert!(text.contains("\nPod   default/odd     no spec\n"), "{text}");
        assert!(
            text.ends_with("\n... and 3 more; select with --namespace, --kind, --handler or --phase\n"),
            "{text}"
        );
    }
}
