//! The status page at `/`: the chain with live numbers, and the objects that fail or are stuck. It needs no script and no other request.

use std::fmt::{self, Display, Formatter, Write};

use crate::health::Condition;
use crate::state::{
    HandlerSummary, ObjectSummary, PhaseName, StateSnapshot, WatchSummary, duration, full_name,
};

const STYLE: &str = include_str!("page.css");

/// The interval at which a browser loads the page again, in seconds.
const REFRESH: u32 = 5;

/// The maximum number of objects on the page, which keeps it under 100 KB.
pub(super) const MAX_OBJECTS: usize = 40;

/// The maximum length of an error on the page, in characters.
const MAX_ERROR: usize = 300;

/// The `Content-Security-Policy` of the page: it contains names and errors from elsewhere, and nothing in it may run or be loaded.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Returns the page. `document` contains at most [`MAX_OBJECTS`] objects: those that fail or are stuck.
pub(super) fn page(document: &StateSnapshot) -> String {
    let mut html = String::with_capacity(16 * 1024);
    let trouble = document.objects.len() + document.undecodable.len();
    let title = if trouble == 0 { String::new() } else { format!(" ({trouble} stuck)") };
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\"><title>staffetta{title}</title>\
         <style>{STYLE}</style></head><body>{}{}{}</body></html>",
        Head(document),
        ChainPicture(document),
        Stuck(document)
    );
    html
}

/// Text from elsewhere, in which HTML has no meaning.
struct Escaped<'t>(&'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// An error, cut off at [`MAX_ERROR`].
struct ErrorText<'t>(&'t str);

impl Display for ErrorText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_ERROR) {
            None => Escaped(self.0).fmt(f),
            Some((end, _)) => write!(f, "{}…", Escaped(&self.0[..end])),
        }
    }
}

/// The program, its role and its readiness.
struct Head<'s>(&'s StateSnapshot);

impl Display for Head<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let StateSnapshot { version, identity, leadership, uptime_seconds, ready, waits, .. } = self.0;
        let (class, ready) = if *ready { ("good", "ready") } else { ("bad", "not ready") };
        write!(
            f,
            "<header><h1>staffetta</h1><p><span class=\"{class}\">{ready}</span>, {}, up for {}</p>\
             <p class=\"quiet\">version {} on {}</p><ul>",
            Escaped(&leadership.role),
            duration(*uptime_seconds),
            Escaped(version),
            Escaped(identity)
        )?;
        for Condition { name, reason } in waits {
            let reason = reason.as_deref().unwrap_or_default();
            write!(f, "<li><b class=\"bad\">{}</b>: {}</li>", Escaped(name), ErrorText(reason))?;
        }
        f.write_str("</ul></header>")
    }
}

/// The way of an event: the watches, and the queues of the handlers.
struct ChainPicture<'s>(&'s StateSnapshot);

impl Display for ChainPicture<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("<main class=\"chain\"><section><h2>Watches of the API server</h2>")?;
        for WatchSummary { kind, listed, objects, added, modified, deleted, silent_seconds, error, .. } in
            &self.0.watches
        {
            let (events, more) = (added + modified + deleted, if *listed { "" } else { "+" });
            write!(f, "<div class=\"box\"><b>{}</b>{objects}{more} objects, {events} events", Escaped(kind))?;
            if let Some(seconds) = silent_seconds {
                write!(f, "<span class=\"quiet\">, last heard {} ago</span>", duration(*seconds))?;
            }
            if let Some(error) = error {
                write!(f, "<br><span class=\"bad\">{}</span>", ErrorText(error))?;
            }
            f.write_str("</div>")?;
        }
        f.write_str(
            "</section><div class=\"arrow\" aria-hidden=\"true\">→</div><section><h2>Queues of the handlers</h2>",
        )?;
        for HandlerSummary { name, open, waits, counts, .. } in &self.0.handlers {
            write!(f, "<div class=\"box\"><b>{}</b>", Escaped(name))?;
            let mut idle = true;
            for phase in PhaseName::ALL {
                let count = counts.get(&phase).copied().unwrap_or_default();
                if count > 0 {
                    let class =
                        if matches!(phase, PhaseName::Failed | PhaseName::Retrying) { "bad" } else { "good" };
                    write!(f, "<span class=\"{class}\">{count} {}</span> ", phase.as_str())?;
                    idle = false;
                }
            }
            if !open {
                write!(f, "<span class=\"quiet\">waits for {}</span>", Escaped(&waits.join("; ")))?;
            } else if idle {
                f.write_str("<span class=\"quiet\">idle</span>")?;
            }
            f.write_str("</div>")?;
        }
        f.write_str("</section></main>")
    }
}

/// The objects that fail or are stuck, with the reasons.
struct Stuck<'s>(&'s StateSnapshot);

impl Display for Stuck<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let StateSnapshot { objects, undecodable, omitted, .. } = self.0;
        f.write_str("<section><h2>Failing and stuck objects</h2>")?;
        if let Some(reason) = self.0.incomplete_reason() {
            write!(f, "<p>{}</p>", Escaped(&reason))?;
        } else if objects.is_empty() && undecodable.is_empty() {
            match self.0.queued_events() {
                0 => f.write_str("<p class=\"good\">None: every object is handled.</p>")?,
                events => write!(f, "<p>None. Events in queues: {events}.</p>")?,
            }
        }
        if !objects.is_empty() || !undecodable.is_empty() {
            f.write_str(
                "<table><thead><tr><th>object<th>handler<th>state<th>attempts<th>reason</tr></thead><tbody>",
            )?;
            objects.iter().try_for_each(|object| write!(f, "{}", StuckRow(object)))?;
            for object in undecodable {
                let name = full_name(object.namespace.as_deref(), &object.name);
                write!(
                    f,
                    "<tr><td><b>{} {}</b><td>none<td>cannot be decoded<td><td class=\"bad\">{}</tr>",
                    Escaped(&object.kind),
                    Escaped(&name),
                    ErrorText(&object.error)
                )?;
            }
            f.write_str("</tbody></table>")?;
        }
        if *omitted > 0 {
            write!(
                f,
                "<p class=\"quiet\">Further objects wait: {omitted}. `staffetta status` lists them.</p>"
            )?;
        }
        f.write_str("</section>")
    }
}

/// One object that fails or is stuck.
struct StuckRow<'s>(&'s ObjectSummary);

impl Display for StuckRow<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ObjectSummary { handler, kind, namespace, name, phase, next_seconds, last_error, .. } = self.0;
        let name = full_name(namespace.as_deref(), name);
        write!(
            f,
            "<tr><td><b>{} {}</b><td data-name=\"handler\">{}<td data-name=\"state\">{} for {}",
            Escaped(kind),
            Escaped(&name),
            Escaped(handler),
            Escaped(phase),
            duration(self.0.age_seconds())
        )?;
        if let Some(next) = next_seconds {
            write!(f, ", next attempt in {}", duration(*next))?;
        }
        match last_error {
            Some(last) => write!(
                f,
                "<td data-name=\"attempts\">{}<td class=\"bad\">{}: {}</tr>",
                last.attempts,
                Escaped(&last.reason),
                ErrorText(&last.error)
            ),
            None => f.write_str("<td><td>no error yet</tr>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn snapshot(objects: &Value) -> StateSnapshot {
        serde_json::from_value(json!({
            "version": "0.1.0", "identity": "web-1_<i>", "started": "2026-01-01T00:00:00Z",
            "leadership": { "name": "staffetta", "leads": true, "role": "leader", "slowRenewals": 0 },
            "uptimeSeconds": 7260.0, "ready": true, "waits": [],
            "watches": [{ "kind": "Pod", "listed": true, "objects": 3, "undecodable": 0, "added": 3, "modified": 2,
                "deleted": 0, "lists": 1, "errors": 0, "said": null, "silentSeconds": 1.0, "error": null }],
            "handlers": [{ "name": "vif", "open": true, "waits": [], "held": 0, "queued": 0, "running": 0,
                "retrying": 0, "failed": 0 }],
            "objects": objects, "omitted": 0, "undecodable": [],
        }))
        .unwrap()
    }

    fn failing(error: &str) -> Value {
        json!({ "handler": "vif", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u", "change": "added",
            "phase": "failed", "since": "2026-01-01T00:00:00Z", "sinceSeconds": 2.0, "next": null, "nextSeconds": 30.0,
            "lastError": { "error": error, "reason": "QuotaExceeded", "attempts": 4, "since": "2026-01-01T00:00:00Z",
                "sinceSeconds": 185.0 } })
    }

    #[test]
    fn the_page_shows_the_chain_and_says_when_nothing_is_stuck() {
        let page = page(&snapshot(&json!([])));
        for part in
            ["<b>Pod</b>3 objects, 5 events", "<b>vif</b>", "idle", "up for 2h01m", "every object is handled"]
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
    fn the_page_is_small_and_refers_to_nothing_else() {
        let objects = vec![failing(&"\"".repeat(10_000)); MAX_OBJECTS];
        let page = page(&snapshot(&Value::Array(objects)));
        assert!(page.len() < 100_000, "{}", page.len());
        for reference in ["src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn a_standby_says_that_it_handles_nothing() {
        let mut standby = snapshot(&json!([]));
        (standby.leadership.leads, standby.leadership.role) = (false, "standby of web-2".to_owned());
        assert!(page(&standby).contains("This process is not the leader (standby of web-2)"));
    }
}
