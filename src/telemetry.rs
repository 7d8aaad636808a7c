//! The log, as text or JSON. Each entry has a constant message, and fields for the variable parts.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::{self, Handle};

use crate::config::{LogFormat, LogOptions, check_log_filter};

/// The filter of the log of this process.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// Reads the filter of the log, and replaces it.
struct Filter {
    read: Box<dyn Fn() -> Result<String, reload::Error> + Send + Sync>,
    replace: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
}

impl Filter {
    fn new<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        let reader = handle.clone();
        Self {
            read: Box::new(move || reader.with_current(ToString::to_string)),
            replace: Box::new(move |filter| handle.reload(filter)),
        }
    }
}

/// The reason why the filter of the log cannot be read or replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// The filter is no filter.
    #[error("the log filter {0}")]
    Invalid(String),
    /// The log of this process is not written by staffetta.
    #[error("this process has no log whose level could change")]
    NoLog,
    /// The log cannot be reached any more.
    #[error("cannot reach the log")]
    Log(#[from] reload::Error),
}

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
    let filter = match log.format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let filter = Filter::new(builder.reload_handle());
            builder.try_init()?;
            filter
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let filter = Filter::new(builder.reload_handle());
            builder.try_init()?;
            filter
        }
    };
    // The log of a process can be started only once.
    let _ = FILTER.set(filter);
    Ok(())
}

/// Returns the filter of the log.
pub(crate) fn log_filter() -> Result<String, FilterError> {
    let filter = FILTER.get().ok_or(FilterError::NoLog)?;
    Ok((filter.read)()?)
}

/// Replaces the filter of the log until the process ends.
pub(crate) fn set_log_filter(text: &str) -> Result<(), FilterError> {
    check_log_filter(text).map_err(FilterError::Invalid)?;
    let parsed = EnvFilter::try_new(text).map_err(|error| FilterError::Invalid(error.to_string()))?;
    let filter = FILTER.get().ok_or(FilterError::NoLog)?;
    // Before the change, because the new filter may hide it.
    warn!(filter = text, "the log level changes");
    Ok((filter.replace)(parsed)?)
}
