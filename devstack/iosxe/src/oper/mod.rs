//! Operational data, in the forms of the YANG modules: numbers of 64 bits are strings (RFC 7951, section 6.1). Pure.

mod apps;
mod arp;
mod hardware;
mod library;
mod resources;

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use arp::arp;
pub(crate) use hardware::hardware;
pub(crate) use library::library;

use crate::iox::{AppConfig, Iox};

/// Generates the data below `app-hosting-oper-data`. There are none while app hosting is disabled.
pub(crate) fn app_hosting(iox: &Iox, config: AppConfig<'_>, now: Instant) -> Value {
    if !iox.enabled {
        return json!({});
    }
    let mut data = json!({
        "app-resources": [resources::resources(iox, config)],
        "app-notifications": iox.notifications.json(),
        "app-globals": { "iox-enabled": true },
    });
    let apps: Vec<_> = iox.apps.iter().map(|app| apps::app(app, config, &iox.options, now)).collect();
    if !apps.is_empty() {
        data["app"] = apps.into();
    }
    data
}

/// A time as `yang:date-and-time` has it.
fn date_and_time(at: Timestamp) -> String {
    at.display_with_offset(jiff::tz::Offset::UTC).to_string()
}
