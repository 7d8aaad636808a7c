//! `staffetta status`: requests the state of a running controller and shows it.

mod details;
pub(super) mod overview;
pub(super) mod rates;
#[cfg(test)]
pub(super) mod testing;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::CommandError;
use super::arguments::OutputFormat;
use super::line::TerminalStyle;
use super::object::{ObjectName, kind_of};
use super::request::{AdminClient, RequestError};
use crate::base::config::TimeSpan;
use crate::observe::state::{MAX_LIMIT, PhaseName, Query, StateSnapshot};
use details::details;
use overview::{Columns, overview};

/// The number of failing and stuck objects up to which the table without a selection has a row for each.
const MAX_ROWS: usize = 20;

/// The interval between two requests of `--wait`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// Show only this object, with all details: `TYPE/NAME`, `TYPE NAME` or `NAME`, such as `pod/web-1`.
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    object: Vec<String>,
    /// Show only objects of this namespace; empty for cluster-scoped objects.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Show only objects of this kind, such as `pod` (case-insensitive).
    #[arg(long)]
    kind: Option<String>,
    /// Show only objects of this handler.
    #[arg(long)]
    handler: Option<String>,
    /// Show only objects in this phase.
    #[arg(long)]
    phase: Option<PhaseName>,
    /// Wait until the object exists and every handler has handled it.
    #[arg(long, requires = "object", conflicts_with = "phase")]
    wait: bool,
    /// The time limit of `--wait`.
    #[arg(long, value_name = "TIME", default_value = "2m", requires = "wait")]
    timeout: TimeSpan,
    /// Show every object that is not handled yet. By default, without a name or a phase, only failing objects and objects that
    /// stay in one phase for more than 5 seconds are shown; without any selection, one by one only if they are at most 20.
    #[arg(long)]
    all: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

/// Requests the state of the controller from `client` and writes it to `output`. With `--wait`, first waits until the object is handled; if
/// the time limit passes before, fails, after the output if the last request succeeded.
pub(super) async fn status(
    arguments: StatusArguments,
    client: &AdminClient,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let StatusArguments { object, namespace, kind, handler, phase, all, wait, timeout, output: format } =
        arguments;
    let kind = kind.as_deref().map(kind_of);
    let selected = match ObjectName::of_words(&object)? {
        Some(name) => name.of_kind(kind)?.query(namespace, client.default_namespace()),
        None => Query { namespace, kind, ..Query::default() },
    };
    let query = Query { handler, phase, limit: Some(MAX_LIMIT), ..selected };
    let is_short =
        !all && query.handler.is_none() && query.selects_all_objects() && format == OutputFormat::Table;
    let query = if is_short { Query { limit: Some(MAX_ROWS), ..query } } else { query };
    let mut document =
        if wait { until_handled(client, &query, timeout).await? } else { client.state(&query).await? };
    let listed = document.objects.len();
    if !all && query.name.is_none() && query.phase.is_none() {
        document.retain_failing_and_stuck();
    }
    let without_rows = is_short && document.failing_and_stuck() > MAX_ROWS;
    let mut hidden = listed - document.objects.len();
    if is_short {
        // What fails or is stuck comes first.
        hidden += std::mem::take(&mut document.omitted);
    }
    let terminal = TerminalStyle::of_stdout();
    let text = || {
        if query.name.is_some() {
            return terminal.untruncated().show(details(&document));
        }
        let (terminal, columns) = match format {
            OutputFormat::Wide => (terminal.untruncated(), Columns::Wide),
            _ if without_rows => (terminal, Columns::Problems),
            _ => (terminal, Columns::Narrow),
        };
        terminal.show(overview(&document, &columns, &query, hidden))
    };
    format.write(&document, text, output)?;
    let message = format!("the object was not handled within {timeout} (--timeout)");
    CommandError::unless(!wait || document.is_handled(), message)
}

/// Requests the state until the objects that `query` selects are handled or `limit` has passed, and returns the last response. Until then,
/// transient errors are ignored, because the leader may change; a permanent error is returned at once.
async fn until_handled(
    client: &AdminClient,
    query: &Query,
    limit: TimeSpan,
) -> Result<StateSnapshot, RequestError> {
    let deadline = Instant::now() + Duration::from(limit);
    loop {
        let state = client.state(query).await;
        let ends = match &state {
            Ok(document) => document.is_handled(),
            Err(error) => error.is_permanent(),
        };
        if ends || Instant::now() + POLL_INTERVAL > deadline {
            return state;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
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
