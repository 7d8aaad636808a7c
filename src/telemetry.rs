//! The log, as text or JSON. Each entry has a constant message, and fields for the variable parts.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogOptions};

/// Starts to log to standard error.
///
/// # Errors
///
/// Fails if the filter is invalid, or if this process has a log already.
pub(crate) fn init(log: &LogOptions) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = EnvFilter::try_new(&log.level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Writing such an error to a closed standard error would panic in the code that logs.
        .log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
}
