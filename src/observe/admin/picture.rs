//! The picture of the chain on the status page: the watch of each kind, the dispatcher, and the queues and drivers of each handler, with a
//! line from each kind to the handlers of that kind. Lines are an SVG that is stretched to the height of the boxes.

use std::fmt::{self, Write};

use staffetta_handler::DriverId;

use super::text::Escaped;
use crate::observe::state::{HandlerSummary, PhaseName, StateSnapshot, WatchSummary, duration};

/// The difference in hue between the colours of two successive kinds of watched objects, in degrees. The first colours are far apart from
/// each other.
const HUE_STEP: usize = 137;

/// Writes the path of events as HTML: from the watch of each kind through the dispatcher to the queues of the handlers of that kind, and their
/// drivers.
pub(super) fn write_picture(html: &mut String, document: &StateSnapshot) -> fmt::Result {
    let StateSnapshot { watches, handlers, uptime_seconds, .. } = document;
    html.write_str(
        "<main class=\"chain\"><h2>Watches</h2><h2></h2><h2>Handlers and their drivers</h2><div class=\"column\">",
    )?;
    for (index, watch) in watches.iter().enumerate() {
        write_watch(html, watch, index * HUE_STEP % 360)?;
    }
    html.write_str("</div><div class=\"lines\">")?;
    write_lines(html, document)?;
    html.write_str("<b>dispatcher</b></div><div class=\"column\">")?;
    for handler in handlers {
        write_handler(html, handler, *uptime_seconds)?;
    }
    html.write_str("</div></main>")
}

/// Returns, as text, the rate per minute of events of which `count` occurred within `seconds`. Less than a minute counts as a minute.
#[expect(clippy::cast_precision_loss, reason = "no process delivers 2^52 events")]
fn per_minute(count: u64, seconds: f64) -> String {
    let rate = count as f64 * 60.0 / seconds.max(60.0);
    format!("{rate:.*}/min", usize::from(rate > 0.0 && rate < 10.0))
}

/// Writes the box with the watch of one kind: the number of objects, the number of events and their rate. `hue` is the colour of the
/// kind, in degrees.
fn write_watch(html: &mut String, watch: &WatchSummary, hue: usize) -> fmt::Result {
    let WatchSummary { kind, listed, objects, undecodable, silent_seconds, error, .. } = watch;
    let (more, events) = (if *listed { "" } else { "+" }, watch.events());
    write!(
        html,
        "<div class=\"box kind\" style=\"--hue:{hue}\"><b>{}</b><span>{objects}{more} objects</span>\
         <small>{events} events, {}</small>",
        Escaped(kind),
        per_minute(events, watch.seconds)
    )?;
    if let Some(seconds) = silent_seconds {
        write!(html, "<small>heard {} ago</small>", duration(*seconds))?;
    }
    if *undecodable > 0 {
        write!(html, "<span class=\"bad\">{undecodable} cannot be decoded</span>")?;
    }
    html.write_str(if error.is_some() { "<span class=\"bad\">fails</span></div>" } else { "</div>" })
}

/// Writes the box with the queues and the drivers of one handler.
fn write_handler(html: &mut String, handler: &HandlerSummary, uptime_seconds: f64) -> fmt::Result {
    let HandlerSummary { name, drivers, open, attempts, counts, .. } = handler;
    let count = |phase| counts.get(&phase).copied().unwrap_or_default();
    let waiting = count(PhaseName::Held) + count(PhaseName::Queued);
    let (retrying, failed) = (count(PhaseName::Retrying), count(PhaseName::Failed));
    let class = if retrying + failed > 0 { " failing" } else { "" };
    write!(html, "<div class=\"box{class}\"><b>{}</b><div class=\"counts\">", Escaped(name))?;
    for (name, count, class) in [
        ("waiting", waiting, "good"),
        ("running", count(PhaseName::Running), "good"),
        ("retrying", retrying, "bad"),
        ("failed", failed, "bad"),
    ] {
        let class = if count == 0 { "quiet" } else { class };
        write!(html, "<span class=\"{class}\">{count} <small>{name}</small></span>")?;
    }
    write!(html, "</div><small>{attempts} attempts, {}</small>", per_minute(*attempts, uptime_seconds))?;
    if !*open {
        html.write_str("<small>gets no events yet</small>")?;
    }
    if !drivers.is_empty() {
        html.write_str("<div class=\"drivers\">")?;
        for DriverId { driver_trait, name } in drivers {
            write!(html, "<span>{} <small>{}</small></span>", Escaped(name), Escaped(driver_trait))?;
        }
        html.write_str("</div>")?;
    }
    html.write_str("</div>")
}

/// Writes the lines of the picture as SVG: one from each kind through the dispatcher to each handler of the kind. In the dispatcher, each kind has
/// a height of its own. A line is dashed if the handler does not receive events yet.
fn write_lines(html: &mut String, document: &StateSnapshot) -> fmt::Result {
    let StateSnapshot { watches, handlers, .. } = document;
    html.write_str(
        "<svg viewBox=\"0 0 100 1000\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"the handlers of each kind\">",
    )?;
    for (from, watch) in watches.iter().enumerate() {
        let (y, middle) = (centre(from, watches.len()), 350 + centre(from, watches.len()) * 3 / 10);
        for (to, handler) in
            handlers.iter().enumerate().filter(|(_, handler)| handler.kinds.contains(&watch.kind))
        {
            let (hue, end) = (from * HUE_STEP % 360, centre(to, handlers.len()));
            let class = if handler.open { "" } else { " class=\"closed\"" };
            write!(
                html,
                "<path{class} style=\"--hue:{hue}\" \
                 d=\"M0 {y}C30 {y} 20 {middle} 50 {middle}S70 {end} 100 {end}\"/>"
            )?;
        }
    }
    html.write_str("</svg>")
}

/// Returns the middle of the box `index` of `count` boxes of equal height, in thousandths of the height of all.
fn centre(index: usize, count: usize) -> usize {
    1000 * (2 * index + 1) / (2 * count)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::admin::testing::snapshot;

    fn picture(state: &StateSnapshot) -> String {
        let mut html = String::new();
        write_picture(&mut html, state).unwrap();
        html
    }

    #[test]
    fn a_line_leads_from_each_kind_to_each_handler_of_that_kind() {
        let mut state = snapshot(&json!([]));
        let handler = |name: &str, kinds: &[&str], open: bool| {
            serde_json::from_value(
                json!({ "name": name, "kinds": kinds, "open": open, "waits": ["the lease"] }),
            )
            .unwrap()
        };
        state.handlers =
            vec![handler("vif", &["Pod"], true), handler("policy", &["Pod", "Namespace"], false)];
        let picture = picture(&state);
        for line in ["M0 500C30 500 20 500 50 500S70 250 100 250\"/>", "50 500S70 750 100 750\"/>"] {
            assert!(picture.contains(line), "{line}: {picture}");
        }
        assert_eq!(picture.matches("<path").count(), 2, "no Namespace is watched");
        assert_eq!(picture.matches("<path class=\"closed\"").count(), 1);
        assert!(picture.contains("gets no events yet"));
    }

    #[test]
    fn the_queue_of_a_handler_shows_its_phases_and_its_rate() {
        let mut state = snapshot(&json!([]));
        state.handlers = vec![
            serde_json::from_value(
                json!({ "name": "vif", "kinds": ["Pod"], "open": true, "waits": [], "attempts": 363,
                "drivers": [{ "trait": "pod_vif", "name": "neutron-vif" }], "held": 1, "queued": 2, "running": 4, "retrying": 0, "failed": 5 }),
            )
            .unwrap(),
        ];
        let picture = picture(&state);
        for part in [
            "5 events, 2.5/min",
            "<div class=\"box failing\"><b>vif</b>",
            "<span class=\"good\">3 <small>waiting",
            "<span class=\"good\">4 <small>running",
            "<span class=\"quiet\">0 <small>retrying",
            "<span class=\"bad\">5 <small>failed",
            "363 attempts, 3.0/min",
            "<span>neutron-vif <small>pod_vif</small></span>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }
}
