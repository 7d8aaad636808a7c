//! Support for the tests of this crate.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The bytes of the log entries of a thread.
type Lines = Arc<Mutex<Vec<u8>>>;

thread_local! {
    /// The log entries of this thread, while they are captured.
    static CAPTURED: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// The log entries of this thread, which are captured until the value is dropped.
///
/// All threads share one subscriber. With one for each thread, a call site that another thread without a subscriber reaches first would be
/// disabled for all of them, since tracing caches that for the process.
pub(crate) struct CapturedLog {
    lines: Lines,
}

impl Drop for CapturedLog {
    fn drop(&mut self) {
        CAPTURED.set(None);
    }
}

impl CapturedLog {
    pub(crate) fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            // Not `filter_fn`, whose answer is kept for each place of the code, and would be that of the first thread there.
            let is_captured = dynamic_filter_fn(|_, _| CAPTURED.with_borrow(Option::is_some));
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(|| LogWriter);
            tracing_subscriber::registry().with(layer).with(LevelFilter::INFO).with(is_captured).init();
        });
        let lines = Lines::default();
        CAPTURED.set(Some(Arc::clone(&lines)));
        Self { lines }
    }

    /// Returns the entries so far that contain `text`, as JSON.
    pub(crate) fn with(&self, text: &str) -> Vec<serde_json::Value> {
        let lines = String::from_utf8(self.lines.lock().clone()).unwrap();
        let lines = lines.lines().filter(|line| line.contains(text));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A writer that appends the bytes of log entries to those of this thread.
struct LogWriter;

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.with_borrow(|lines| {
            if let Some(lines) = lines {
                lines.lock().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
