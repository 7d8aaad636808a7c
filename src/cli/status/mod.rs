//! `staffetta status`: requests the state of a running controller and shows it.

mod address;
mod details;
mod overview;
mod request;
mod text;

use std::io::{self, IsTerminal, Write};

use super::CommandError;
use super::arguments::{OutputFormat, StatusArguments};
use crate::config::{Configuration, ConfigurationError};
use crate::state::{MAX_LIMIT, Query};

pub(super) use address::AddressError;
pub(super) use request::RequestError;

/// Requests the state and writes it to `output`. `load` reads the configuration; it is called only if the command line has no address.
pub(super) fn status(
    arguments: StatusArguments,
    load: impl FnOnce() -> Result<Configuration, ConfigurationError>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let url = match &arguments.admin {
        Some(url) => address::from_argument(url)?,
        None => address::from_listen_address(load()?.admin.listen)?,
    };
    let query = Query { limit: Some(MAX_LIMIT), ..arguments.query };
    let mut document = request::request(url, &query)?;
    if !arguments.all && query.name.is_none() && query.phase.is_none() {
        document.retain_failing_and_stuck();
    }
    match arguments.output {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut *output, &document).map_err(io::Error::from)?;
            writeln!(output)?;
        }
        OutputFormat::Table if query.name.is_some() => write!(output, "{}", details::details(&document))?,
        OutputFormat::Table => write!(output, "{}", overview::overview(&document, terminal_width()))?,
    }
    Ok(())
}

/// Returns the width of the terminal in characters; `None` if the output goes to a file or a pipe, and lines are not truncated.
fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok())??;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod testing {
    use serde_json::json;

    use crate::state::{ObjectSummary, StateSnapshot};

    /// Returns the state of a healthy controller with these objects.
    pub(super) fn document(objects: Vec<ObjectSummary>) -> StateSnapshot {
        let mut document: StateSnapshot = serde_json::from_value(json!({
            "version": "0.1.0", "identity": "web-1", "started": "2026-11-21T14:00:00.000Z", "uptimeSeconds": 3723.0,
            "leadership": { "name": "staffetta", "leads": true, "role": "leader", "slowRenewals": 0 },
            "ready": true, "waits": [], "watches": [], "objects": [], "omitted": 0, "undecodable": [],
            "handlers": [{ "name": "vif", "open": true, "waits": [],
                "held": 0, "queued": 0, "running": 0, "retrying": 0, "failed": 0 }],
        }))
        .unwrap();
        document.objects = objects;
        document
    }

    /// Returns a pod that has been in `phase` for `seconds`.
    pub(super) fn object(name: &str, phase: &str, seconds: f64, error: Option<&str>) -> ObjectSummary {
        let since = "2026-11-21T14:00:00.000Z";
        let last_error = error.map(|error| {
            json!({ "error": error, "reason": "NoAddress", "attempts": 3, "since": since, "sinceSeconds": seconds })
        });
        serde_json::from_value(json!({
            "handler": "vif", "kind": "Pod", "namespace": "default", "name": name, "uid": "u1", "change": "added",
            "phase": phase, "since": since, "sinceSeconds": seconds, "lastError": last_error,
            "next": error.map(|_| since), "nextSeconds": error.map(|_| 30.0),
        }))
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{document, object};

    #[test]
    fn failing_and_stuck_objects_are_shown_by_default() {
        let mut document = document(vec![
            object("failing", "running", 0.1, Some("no address")),
            object("moving", "running", 4.9, None),
            object("stuck", "queued", 5.1, None),
        ]);
        document.retain_failing_and_stuck();
        let names: Vec<_> = document.objects.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["failing", "stuck"]);
    }
}
