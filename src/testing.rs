//! What tests of this crate share.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// What is logged by this thread while it lives.
pub(crate) struct Logged {
    lines: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Logged {
    pub(crate) fn start() -> Self {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&lines);
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || Writer(Arc::clone(&writer)))
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines so far that contain `text`, as JSON.
    pub(crate) fn with(&self, text: &str) -> Vec<serde_json::Value> {
        let lines = String::from_utf8(self.lines.lock().unwrap().clone()).unwrap();
        let lines = lines.lines().filter(|line| line.contains(text));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
