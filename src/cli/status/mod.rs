//! `staffetta status`: asks a running controller how it is, and shows its answer.

mod address;
mod ask;
mod details;
mod overview;
mod words;

use std::io::{self, IsTerminal, Write};

use super::CommandError;
use super::arguments::{OutputForm, StatusArguments};
use crate::config::{Configuration, ConfigurationError};
use crate::state::{Document, MAX_LIMIT, Query};

pub(super) use address::AddressError;
pub(super) use ask::AskError;

/// How long an object may be in one phase before it is shown without being asked for, in seconds.
const UNREMARKABLE: f64 = 5.0;

/// Asks and shows. The configuration is read only when the command line does not say where the controller is.
pub(super) fn status(
    arguments: StatusArguments,
    load: impl FnOnce() -> Result<Configuration, ConfigurationError>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let url = match &arguments.admin {
        Some(url) => address::given(url)?,
        None => address::configured(load()?.admin.listen)?,
    };
    let query = Query {
        namespace: arguments.namespace,
        name: arguments.name,
        kind: arguments.kind,
        handler: arguments.handler,
        phase: arguments.phase,
        limit: Some(MAX_LIMIT),
    };
    let mut document = ask::ask(url, &query)?;
    if !arguments.all && query.name.is_none() && query.phase.is_none() {
        hide_the_unremarkable(&mut document);
    }
    match arguments.output {
        OutputForm::Json => {
            serde_json::to_writer_pretty(&mut *output, &document).map_err(io::Error::from)?;
            writeln!(output)?;
        }
        OutputForm::Table if query.name.is_some() => write!(output, "{}", details::details(&document))?,
        OutputForm::Table => write!(output, "{}", overview::overview(&document, width()))?,
    }
    Ok(())
}

/// What is well and moves along needs nobody's eye.
fn hide_the_unremarkable(document: &mut Document) {
    document.objects.retain(|object| object.trouble.is_some() || object.since_seconds > UNREMARKABLE);
}

/// How wide the terminal is; none where the answer goes elsewhere, and is not cut.
fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok())??;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod testing {
    use serde_json::json;

    use crate::state::{Document, Object};

    /// A controller in which all is well but for these objects.
    pub(super) fn document(objects: Vec<Object>) -> Document {
        let mut document: Document = serde_json::from_value(json!({
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

    /// A pod that has been in a phase for so long.
    pub(super) fn object(name: &str, phase: &str, seconds: f64, error: Option<&str>) -> Object {
        let since = "2026-11-21T14:00:00.000Z";
        let trouble = error.map(|error| {
            json!({ "error": error, "reason": "NoAddress", "attempts": 3, "since": since, "sinceSeconds": seconds })
        });
        serde_json::from_value(json!({
            "handler": "vif", "kind": "Pod", "namespace": "default", "name": name, "uid": "u1", "change": "added",
            "phase": phase, "since": since, "sinceSeconds": seconds, "trouble": trouble,
            "next": error.map(|_| since), "nextSeconds": error.map(|_| 30.0),
        }))
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{document, object};
    use super::*;

    #[test]
    fn unasked_are_shown_those_in_trouble_and_those_that_do_not_move() {
        let mut document = document(vec![
            object("in-trouble", "running", 0.1, Some("no address")),
            object("moves", "running", 4.9, None),
            object("does-not", "queued", 5.1, None),
        ]);
        hide_the_unremarkable(&mut document);
        let names: Vec<_> = document.objects.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["in-trouble", "does-not"]);
    }
}
