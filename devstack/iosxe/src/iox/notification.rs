//! The list `app-notifications`, the only place where a device reports the reason of a failed installation.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde_json::{Value, json};

/// The number of notifications that a device keeps.
const REMEMBERED: usize = 100;

/// Something a device notes.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    /// Behind `im-app-`, or whole.
    event: String,
    app: String,
    passed: bool,
    message: String,
    /// Behind `im-state-`.
    state: &'static str,
}

impl Notification {
    pub(crate) fn iox_enabled() -> Self {
        Self {
            event: "im-iox-enable".into(),
            app: String::new(),
            passed: true,
            message: "iox enable".into(),
            state: "uninstalled",
        }
    }

    pub(crate) fn passed(event: &str, app: &str, state: &'static str) -> Self {
        let message = format!("{event} of {app} succeeded");
        Self { event: format!("im-app-{event}"), app: app.into(), passed: true, message, state }
    }

    pub(crate) fn failed(event: &str, app: &str, message: &str, state: &'static str) -> Self {
        let event = format!("im-app-{event}");
        Self { event, app: app.into(), passed: false, message: message.into(), state }
    }
}

/// The notifications of a device, oldest first.
#[derive(Debug)]
pub(crate) struct Notifications {
    host: String,
    /// The total number of notifications so far.
    count: u64,
    entries: VecDeque<Value>,
}

impl Notifications {
    pub(crate) fn new(host: &str) -> Self {
        Self { host: host.to_owned(), count: 0, entries: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, at: Timestamp, notification: Notification) {
        let Notification { event, app, passed, message, state } = notification;
        self.count += 1;
        // The list is keyed by the name, of which samples of devices show `event` alone.
        let name = if self.count == 1 { "event".to_owned() } else { format!("event-{}", self.count) };
        self.entries.push_back(json!({
            "name": name,
            "timestamp": at.to_string(),
            "severity-level": if passed { "minor" } else { "major" },
            "host-name": self.host,
            "vrf-name": "",
            "app-id": app,
            "ev-type": event,
            "status": if passed { "im-app-pass" } else { "im-app-fail" },
            "message": message,
            "app-state": format!("im-state-{state}"),
        }));
        if self.entries.len() > REMEMBERED {
            self.entries.pop_front();
        }
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        self.entries.iter().cloned().collect()
    }
}
