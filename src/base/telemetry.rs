//! The log, as text or JSON. Each entry has a constant message, and fields for the variable parts.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tokio::runtime::Runtime;
use tracing::{Dispatch, Metadata, warn};
use tracing_subscriber::filter::{FilterExt, FilterFn, LevelFilter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::base::config::{LogFormat, LogOptions, TraceOptions, check_log_filter};
use crate::base::traces;

/// A handle by which the filter of the log is read and replaced.
type LogFilter = Handle<EnvFilter, tracing_subscriber::Registry>;

/// The handle of this process's log filter; empty until `init` has started the log.
static FILTER: OnceLock<LogFilter> = OnceLock::new();

/// The reason why the filter of the log cannot be read or replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// The text of the new filter is invalid. The value says why.
    #[error("the log filter {0}")]
    Invalid(String),
    /// staffetta has not started a log in this process.
    #[error("this process has no log whose level could change")]
    NoLog,
    /// The tracing subscriber that writes the log no longer exists, or its lock is poisoned.
    #[error("cannot reach the log")]
    Log(#[from] reload::Error),
}

/// Starts to log to standard error and, with `traces`, to export traces with these options. The exports run on that runtime.
///
/// # Errors
///
/// Fails if an option is invalid, or if this process has a log already.
pub(crate) fn init(
    log: &LogOptions,
    traces: Option<(&TraceOptions, &Runtime)>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (dispatch, handle) = dispatch(log, traces)?;
    dispatch.try_init()?;
    // The log of a process can be started only once.
    let _ = FILTER.set(handle);
    Ok(())
}

/// Builds the tracing subscriber and the handle of its log filter. The subscriber writes log entries and, if `traces` names a collector,
/// exports spans. Fails if an option is invalid.
fn dispatch(
    log: &LogOptions,
    traces: Option<(&TraceOptions, &Runtime)>,
) -> Result<(Dispatch, LogFilter), Box<dyn std::error::Error + Send + Sync>> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(&log.level)?);
    let layer = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Writing such an error to a closed standard error would panic in the code that logs.
        .log_internal_errors(false);
    let layer = match log.format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    // Spans are for traces; each log entry has all its fields itself.
    let entries = FilterFn::new(is_entry).with_max_level_hint(LevelFilter::TRACE);
    let layer = layer.with_filter(entries.and(filter));
    let traces = match traces {
        Some((options, runtime)) => traces::start(options, runtime.handle())?,
        None => None,
    };
    let registry = tracing_subscriber::registry().with(layer);
    // An absent layer as an `Option` would enable all spans, although the filter of the log rejects them.
    let dispatch = match traces {
        Some(traces) => Dispatch::new(registry.with(traces)),
        None => Dispatch::new(registry),
    };
    Ok((dispatch, handle))
}

/// Returns `true` for entries of the log, and `false` for spans.
fn is_entry(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}

/// Returns the filter of the log in effect, such as `info,staffetta_network=debug`. Fails if no log was started.
pub(crate) fn log_filter() -> Result<String, FilterError> {
    let filter = FILTER.get().ok_or(FilterError::NoLog)?;
    Ok(filter.with_current(ToString::to_string)?)
}

/// Replaces the filter of the log by `text` until the process ends. Fails if `text` is no valid filter, or if no log was started.
pub(crate) fn set_log_filter(text: &str) -> Result<(), FilterError> {
    check_log_filter(text).map_err(FilterError::Invalid)?;
    let parsed = EnvFilter::try_new(text).map_err(|error| FilterError::Invalid(error.to_string()))?;
    let filter = FILTER.get().ok_or(FilterError::NoLog)?;
    // Before the change, because the new filter may hide it.
    warn!(filter = text, "the log level changes");
    Ok(filter.reload(parsed)?)
}

#[cfg(test)]
mod tests {
    use tracing::info_span;

    use super::*;

    #[test]
    fn without_a_collector_no_span_is_created() {
        let runtime = Runtime::new().unwrap();
        let options = TraceOptions::default();
        let (dispatch, _) = dispatch(&LogOptions::default(), Some((&options, &runtime))).unwrap();
        let span = info_span!("attempt");
        assert!(dispatch.register_callsite(span.metadata().unwrap()).is_never());
        assert!(traces::tracer().is_none());
    }
}
