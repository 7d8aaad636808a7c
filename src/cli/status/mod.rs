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
