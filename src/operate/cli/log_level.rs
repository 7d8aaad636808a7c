//! `staffetta log-level`: shows or changes the log level of a running controller.

use std::io::Write;

use clap::Args;
use serde_json::json;

use super::CommandError;
use super::arguments::OutputArguments;
use super::request::AdminClient;

#[derive(Debug, Args)]
pub(super) struct LogLevelArguments {
    /// The new level: `off`, `error`, `warn`, `info`, `debug` or `trace`. Levels for parts of the program may follow after commas:
    /// `info,staffetta_network=debug`.
    pub(super) filter: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Changes the log level if there is a new one, and writes the level to `output`.
pub(super) async fn log_level(
    arguments: LogLevelArguments,
    client: &AdminClient,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    if let Some(filter) = arguments.filter {
        client.set_log_filter(filter).await?;
    }
    let level = client.log_filter().await?;
    Ok(arguments.output.format.write(&json!({ "level": level }), || format!("{level}\n"), output)?)
}
