//! Support for the tests of this crate.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// The log entries of this thread, which are captured until the value is dropped.
pub(crate) struct CapturedLog {
    lines: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl CapturedLog {
    pub(crate) fn start() -> Self {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&lines);
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || LogWriter(Arc::clone(&writer)))
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns the entries so far that contain `text`, as JSON.
    pub(crate) fn with(&self, text: &str) -> Vec<serde_json::Value> {
        let lines = String::from_utf8(self.lines.lock().unwrap().clone()).unwrap();
        let lines = lines.lines().filter(|line| line.contains(text));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A writer that appends the bytes of log entries to a shared buffer.
struct LogWriter(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
