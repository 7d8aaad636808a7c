//! The response to a watch: the events of a [`Watcher`] as lines of JSON, bookmarks, and an end after a timeout.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::call::Call;
use crate::engine::{ListQuery, parse_version};
use crate::object::Object;
use crate::shared::Shared;
use crate::status::{Cause, Status};
use crate::table::Resource;
use crate::views::form::Form;
use crate::watch::{Happened, Watcher};

/// The start of a watch: the present objects, or a revision.
struct Beginning {
    watcher: Watcher,
    present: Vec<Object>,
    /// `true` if a bookmark marks the end of the present objects.
    marks_present: bool,
}

/// Begins a watch.
pub(super) fn begin(shared: &Arc<Shared>, call: &Call) -> Result<Response, Status> {
    let bookmarks = call.query.flag("allowWatchBookmarks")?;
    let timeout = call.query.timeout()?;
    let beginning = shared.with(|cluster| beginning(cluster, call, bookmarks))?;
    let mut lines = String::new();
    for object in &beginning.present {
        line(&mut lines, Happened::Added.name(), &call.form.object(&call.resource, object, call.now));
    }
    let seen = beginning.watcher.seen();
    if beginning.marks_present {
        line(&mut lines, "BOOKMARK", &bookmark(&call.resource, seen, true));
    }
    let start = Instant::now();
    let mut bookmark_ticks = interval_at(start + shared.bookmark_interval, shared.bookmark_interval);
    bookmark_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let streaming = Streaming {
        written: shared.written.subscribe(),
        shared: Arc::clone(shared),
        resource: Arc::clone(&call.resource),
        form: call.form,
        watcher: beginning.watcher,
        bookmarks: bookmarks.then_some(bookmark_ticks),
        end: start + timeout,
        ready: if lines.is_empty() { VecDeque::new() } else { VecDeque::from([lines]) },
        over: false,
    };
    let body = Body::from_stream(stream::unfold(streaming, Streaming::step));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn beginning(cluster: &crate::engine::Cluster, call: &Call, bookmarks: bool) -> Result<Beginning, Status> {
    let selector = call.query.selector(&call.resource)?;
    let version = call.query.text("resourceVersion");
    let version = parse_version(version).map_err(|_| {
        Status::unexplained(format!("resourceVersion: Invalid value: {version:?}: it is not a number"))
    })?;
    let initial = call.query.text("sendInitialEvents");
    let matching = call.query.text("resourceVersionMatch");
    if !initial.is_empty() && matching != "NotOlderThan" {
        return Err(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if initial.is_empty() && !matching.is_empty() {
        return Err(forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    let initial = call.query.flag("sendInitialEvents")?;
    let namespace = call.namespace.clone();
    let stored_as = Arc::clone(&call.resource.stored_as);
    if let Some(version) = version.filter(|version| *version > 0 && !initial) {
        let watcher = Watcher::new(stored_as, namespace, selector, version);
        return Ok(Beginning { watcher, present: Vec::new(), marks_present: false });
    }
    let listing = cluster.list(&call.resource, namespace.as_deref(), &selector, &ListQuery::default())?;
    let skipped = call.query.text("sendInitialEvents") == "false";
    Ok(Beginning {
        watcher: Watcher::new(stored_as, namespace, selector, listing.revision),
        present: if skipped { Vec::new() } else { listing.objects },
        marks_present: bookmarks && !skipped,
    })
}

fn forbidden(why: &str) -> Status {
    Status::invalid_options(Cause::forbidden("resourceVersionMatch", why))
}

fn line(lines: &mut String, kind: &str, object: &Value) {
    // Writing to a string does not fail.
    let _ = writeln!(lines, "{{\"type\":\"{kind}\",\"object\":{object}}}");
}

fn bookmark(resource: &Resource, revision: u64, ends_initial_events: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if ends_initial_events {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata})
}

/// A watch that is under way.
struct Streaming {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
    form: Form,
    watcher: Watcher,
    written: watch::Receiver<u64>,
    bookmarks: Option<Interval>,
    end: Instant,
    /// Lines that wait to be sent.
    ready: VecDeque<String>,
    /// Nothing follows the lines that are ready.
    over: bool,
}

impl Streaming {
    /// The next chunk of lines.
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if let Some(lines) = self.ready.pop_front() {
                return Some((Ok(Bytes::from(lines)), self));
            }
            if self.over {
                return None;
            }
            self.written.mark_unchanged();
            if !self.read() {
                self.wait().await;
            }
        }
    }

    /// Reads what happened. True if there is something to send.
    fn read(&mut self) -> bool {
        let watcher = &mut self.watcher;
        let mut lines = String::new();
        match self.shared.with(|cluster| watcher.next(&cluster.store)) {
            Ok(happened) => {
                let now = Timestamp::now();
                for (kind, object) in happened {
                    line(&mut lines, kind.name(), &self.form.object(&self.resource, &object, now));
                }
            }
            Err(status) => {
                line(&mut lines, "ERROR", &status.json());
                self.over = true;
            }
        }
        let something = !lines.is_empty();
        if something {
            self.ready.push_back(lines);
        }
        something
    }

    /// Waits for a reason to look again.
    async fn wait(&mut self) {
        let tick = async {
            match &mut self.bookmarks {
                Some(ticks) => ticks.tick().await,
                _ => std::future::pending().await,
            }
        };
        let (mut bookmark_due, mut time_is_up) = (false, false);
        tokio::select! {
            // The server owns the sender for as long as the watch holds it.
            _ = self.written.changed() => {}
            () = tokio::time::sleep_until(self.end) => time_is_up = true,
            _ = tick => bookmark_due = true,
        }
        if time_is_up {
            self.read(); // what happened until now still belongs to it
            self.over = true;
        }
        if bookmark_due {
            let mut lines = String::new();
            line(&mut lines, "BOOKMARK", &bookmark(&self.resource, self.watcher.seen(), false));
            self.ready.push_back(lines);
        }
    }
}
