//! The status page at `/`: the chain with live numbers, and the objects that fail or are stuck. It needs no script and no other request.

use std::fmt::{self, Write};

use super::picture::write_picture;
use super::text::{ErrorText, Escaped};
use crate::base::health::Condition;
use crate::observe::state::{
    HandlerSummary, ObjectSummary, Problem, StateSnapshot, WatchSummary, duration, full_name,
};

const STYLE: &str = include_str!("page.css");

/// The interval at which a browser loads the page again, in seconds.
const REFRESH: u32 = 5;

/// The maximum number of objects and of problems on the page, which keeps it under 100 KB.
pub(super) const MAX_OBJECTS: usize = 12;

/// The `Content-Security-Policy` of the page: it contains names and errors from other systems, so nothing in it may run or be loaded.
pub(super) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'";

/// An empty icon. Without it, browsers request `/favicon.ico`.
const ICON: &str = "<link rel=\"icon\" href=\"data:,\">";

/// Returns the status page as HTML. `document` contains at most [`MAX_OBJECTS`] objects: those that fail or are stuck.
pub(super) fn page(document: &StateSnapshot) -> String {
    let mut html = String::with_capacity(16 * 1024);
    // Writing to a `String` does not fail.
    let _ = write_page(&mut html, document);
    html
}

/// Writes the whole status page as HTML: the head, the picture of the watches and handlers, and the objects that fail, are stuck or cannot
/// be decoded.
fn write_page(html: &mut String, document: &StateSnapshot) -> fmt::Result {
    let stuck = document.failing_and_stuck() + document.undecodable.len();
    let title = if stuck == 0 { String::new() } else { format!(" ({stuck} stuck)") };
    write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\"><title>staffetta{title}</title>\
         {ICON}<style>{STYLE}</style></head><body>"
    )?;
    write_head(html, document)?;
    write_problems(html, &document.problems)?;
    write_picture(html, document)?;
    write_stuck(html, document)?;
    html.write_str("</body></html>")
}

/// Writes the head of the page: the role and the readiness of the controller, and the reasons for what does not work.
fn write_head(html: &mut String, document: &StateSnapshot) -> fmt::Result {
    let StateSnapshot {
        version, identity, leadership, uptime_seconds, ready, waits, watches, handlers, ..
    } = document;
    let (class, ready) = if *ready { ("good", "ready") } else { ("bad", "not ready") };
    write!(
        html,
        "<header><h1>staffetta</h1><p><span class=\"{class}\">{ready}</span>, {}, up for {}, {} waiting</p>\
         <p class=\"quiet\">version {} on {}. Ready means that events are handled, not that every object is.</p><ul>",
        Escaped(&leadership.role),
        duration(*uptime_seconds),
        document.queued_events(),
        Escaped(version),
        Escaped(identity)
    )?;
    for Condition { name, reason } in waits {
        let reason = reason.as_deref().unwrap_or_default();
        write!(html, "<li><b class=\"bad\">{}</b>: {}</li>", Escaped(name), ErrorText(reason))?;
    }
    // The conditions above contain the error of a watch that has not listed all objects.
    for WatchSummary { kind, error, .. } in watches.iter().filter(|watch| watch.listed) {
        if let Some(error) = error {
            write!(html, "<li><b class=\"bad\">watch {}</b>: {}</li>", Escaped(kind), ErrorText(error))?;
        }
    }
    for HandlerSummary { name, waits, .. } in handlers.iter().filter(|handler| !handler.open) {
        let waits = waits.join("; ");
        write!(html, "<li><b>handler {}</b> waits for {}</li>", Escaped(name), ErrorText(&waits))?;
    }
    html.write_str("</ul></header>")
}

/// Writes a table of the problems; nothing without any.
fn write_problems(html: &mut String, problems: &[Problem]) -> fmt::Result {
    if problems.is_empty() {
        return Ok(());
    }
    html.write_str(
        "<section><h2>Problems</h2><table><thead><tr><th>reason<th>objects<th>handler<th>since<th>example<th>remedy</tr>\
         </thead><tbody>",
    )?;
    for Problem { reason, handler, objects, since_seconds, example, error, remedy, .. } in
        problems.iter().take(MAX_OBJECTS)
    {
        write!(
            html,
            "<tr><td class=\"bad\">{}<td data-name=\"objects\"><b>{objects}</b><td data-name=\"handler\">{}\
             <td data-name=\"since\">{}<td data-name=\"example\">{}: {}<td data-name=\"remedy\">{}</tr>",
            Escaped(reason),
            Escaped(handler),
            duration(*since_seconds),
            Escaped(example),
            ErrorText(error.as_deref().unwrap_or("no error yet")),
            Escaped(remedy.as_deref().unwrap_or_default()),
        )?;
    }
    html.write_str("</tbody></table></section>")
}

/// Writes the section of the page with the objects that fail, are stuck or cannot be decoded, and the reasons.
fn write_stuck(html: &mut String, document: &StateSnapshot) -> fmt::Result {
    let StateSnapshot { objects, undecodable, omitted, .. } = document;
    html.write_str("<section><h2>Failing and stuck objects</h2>")?;
    if let Some(reason) = document.incomplete_reason() {
        write!(html, "<p>{}</p>", Escaped(&reason))?;
    } else if objects.is_empty() && undecodable.is_empty() {
        match document.queued_events() {
            0 => html.write_str("<p class=\"good\">None: every object is handled.</p>")?,
            events => write!(html, "<p>None. Events in queues: {events}.</p>")?,
        }
    }
    let failing = document.failing_and_stuck();
    let shown: &[ObjectSummary] = if failing > MAX_OBJECTS { &[] } else { objects };
    if failing > MAX_OBJECTS {
        write!(html, "<p class=\"bad\">{failing} objects. `staffetta status --all` lists them.</p>")?;
    }
    if !shown.is_empty() || !undecodable.is_empty() {
        html.write_str(
            "<table><thead><tr><th>object<th>handler<th>state<th>attempts<th>reason</tr></thead><tbody>",
        )?;
        shown.iter().try_for_each(|object| write_stuck_row(html, object))?;
        for object in undecodable {
            let name = full_name(object.namespace.as_deref(), &object.name);
            write!(
                html,
                "<tr><td><b>{} {}</b><td>none<td>cannot be decoded<td><td class=\"bad\">{}</tr>",
                Escaped(&object.kind),
                Escaped(&name),
                ErrorText(&object.error)
            )?;
        }
        html.write_str("</tbody></table>")?;
    }
    if *omitted > 0 && failing <= MAX_OBJECTS {
        write!(
            html,
            "<p class=\"quiet\">Further objects wait: {omitted}. `staffetta status` lists them.</p>"
        )?;
    }
    html.write_str("</section>")
}

/// Writes the table row of one object that fails or is stuck.
fn write_stuck_row(html: &mut String, object: &ObjectSummary) -> fmt::Result {
    let ObjectSummary { handler, kind, namespace, name, phase, next_seconds, last_error, .. } = object;
    let name = full_name(namespace.as_deref(), name);
    write!(
        html,
        "<tr><td><b>{} {}</b><td data-name=\"handler\">{}<td data-name=\"state\">{} for {}",
        Escaped(kind),
        Escaped(&name),
        Escaped(handler),
        Escaped(phase),
        duration(object.age_seconds())
    )?;
    if let Some(next) = next_seconds {
        write!(html, ", next attempt in {}", duration(*next))?;
    }
    match last_error {
        Some(last) => write!(
            html,
            "<td data-name=\"attempts\">{}<td class=\"bad\">{}: {}</tr>",
            last.attempts,
            Escaped(&last.reason),
            ErrorText(&last.error)
        ),
        None => html.write_str("<td><td>no error yet</tr>"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::observe::admin::testing::{failing, snapshot};

    #[test]
    fn the_page_shows_the_chain_and_says_when_nothing_is_stuck() {
        let page = page(&snapshot(&json!([])));
        for part in
            ["<b>Pod</b><span>3 objects", "5 events", "<b>vif</b>", "up for 2h01m", "every object is handled"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_failing_object_is_shown_with_its_age_its_attempts_and_the_error() {
        let page = page(&snapshot(&json!([failing("no port is left")])));
        for part in [
            "(1 stuck)",
            "Pod shop/web-1",
            "failed for 3m05s, next attempt in 30s",
            ">4<",
            "QuotaExceeded: no port is left",
            "<h2>Problems</h2>",
            "raise it, or release resources",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("every object is handled"));
    }

    #[test]
    fn text_from_elsewhere_cannot_become_html() {
        let page = page(&snapshot(&json!([failing("<script>alert('x')</script> & \"y\"")])));
        assert!(!page.contains("<script") && !page.contains("<i>"), "{page}");
        assert!(
            page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;"),
            "{page}"
        );
    }

    #[test]
    fn many_failing_objects_are_one_row_for_each_reason_above_the_picture() {
        let mut many = snapshot(&json!([failing("no port is left")]));
        many.problems[0].objects = 2000;
        many.omitted = 1999;
        let page = page(&many);
        let (above, below) = page.split_once("<main").unwrap();
        assert!(
            above.contains("<b>2000</b>") && above.contains("Pod shop/web-1: no port is left"),
            "{above}"
        );
        assert!(below.contains("2000 objects. `staffetta status --all` lists them"), "{below}");
        assert!(!below.contains("no port is left"), "{below}");
    }

    #[test]
    fn the_page_is_small_and_refers_to_nothing_else() {
        let objects = vec![failing(&"\"".repeat(10_000)); MAX_OBJECTS];
        let mut document = snapshot(&Value::Array(objects));
        document.problems = vec![document.problems[0].clone(); 100];
        let page = page(&document);
        assert!(page.len() < 100_000, "{}", page.len());
        let (before, after) = page.split_once(ICON).expect("the icon is part of the page");
        let page = format!("{before}{after}");
        for reference in ["src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_reasons_of_what_does_not_work_are_above_the_picture() {
        let mut failing = snapshot(&json!([]));
        failing.watches[0].error = Some("410 Gone".to_owned());
        (failing.handlers[0].open, failing.handlers[0].waits) = (false, vec!["driver <neutron>".to_owned()]);
        let page = page(&failing);
        let (above, _) = page.split_once("<main").unwrap();
        for part in
            ["<b class=\"bad\">watch Pod</b>: 410 Gone", "handler vif</b> waits for driver &lt;neutron&gt;"]
        {
            assert!(above.contains(part), "{part}: {above}");
        }
    }

    #[test]
    fn a_standby_says_that_it_handles_nothing() {
        let mut standby = snapshot(&json!([]));
        (standby.leadership.leads, standby.leadership.role) = (false, "standby of web-2".to_owned());
        assert!(page(&standby).contains("This process is not the leader (standby of web-2)"));
    }
}
