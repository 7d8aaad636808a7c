//! `staffetta log-level`: shows or changes the log level of a running controller.

use std::io::Write;

use super::CommandError;
use super::arguments::LogLevelArguments;
use super::request::AdminClient;

/// Changes the log level if there is a new one, and writes the level to `output`.
pub(super) async fn log_level(
    arguments: LogLevelArguments,
    client: &AdminClient,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    if let Some(filter) = arguments.filter {
        client.set_log_filter(filter).await?;
    }
    writeln!(output, "{}", client.log_filter().await?)?;
    Ok(())
}
