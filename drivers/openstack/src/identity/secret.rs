//! Reads the secret of a login from the configuration or from a file.

use std::io;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::access::Secret;

/// The maximum time that a login waits for the file with its secret.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads secrets, with at most one file read in progress. If a read hangs, it occupies only one thread, however many logins time out.
#[derive(Debug, Default)]
pub(super) struct SecretReader(Option<JoinHandle<io::Result<String>>>);

impl SecretReader {
    /// Returns the text of the secret. A file is read on a blocking thread; the error is [`io::ErrorKind::TimedOut`] if that takes more
    /// than five seconds.
    pub(super) async fn reveal(&mut self, secret: &Secret) -> io::Result<String> {
        if secret.file().is_none() {
            return secret.reveal();
        }
        let secret = secret.clone();
        self.read(move || secret.reveal()).await
    }

    /// Runs `read` in a thread for blocking work, and waits for it for at most [`FILE_TIMEOUT`]. If it hangs, as on a network file system,
    /// the next call waits for it again instead of running its own `read`, so that at most one thread hangs.
    async fn read(
        &mut self,
        read: impl FnOnce() -> io::Result<String> + Send + 'static,
    ) -> io::Result<String> {
        // The result of a read that finished after its timeout may be outdated, and is dropped.
        let pending = self.0.take().filter(|handle| !handle.is_finished());
        let handle = self.0.insert(pending.unwrap_or_else(|| spawn_blocking(read)));
        let Ok(text) = timeout(FILE_TIMEOUT, handle).await else {
            let text = format!("it could not be read within {} s", FILE_TIMEOUT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        };
        self.0 = None;
        text.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use parking_lot::Mutex;

    use super::*;

    /// A file whose content is available only when the test provides it.
    struct Slow {
        comes: Sender<&'static str>,
        coming: Arc<Mutex<Receiver<&'static str>>>,
        begun: Arc<AtomicUsize>,
    }

    impl Slow {
        fn new() -> Self {
            let (comes, coming) = channel();
            Self { comes, coming: Arc::new(Mutex::new(coming)), begun: Arc::default() }
        }

        fn read(&self) -> impl FnOnce() -> io::Result<String> + Send + 'static {
            let (coming, begun) = (Arc::clone(&self.coming), Arc::clone(&self.begun));
            move || {
                begun.fetch_add(1, Ordering::SeqCst);
                let came = coming.lock().recv_timeout(Duration::from_secs(30));
                came.map(str::to_owned).map_err(io::Error::other)
            }
        }

        /// Asserts that a read of the file times out.
        async fn stays_away(&self, reading: &mut SecretReader) {
            let (read, ()) = tokio::join!(reading.read(self.read()), tokio::time::advance(FILE_TIMEOUT));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_does_not_come_is_given_up_and_holds_one_thread_however_often_it_is_tried() {
        let (slow, mut reading) = (Slow::new(), SecretReader::default());
        for _ in 0..3 {
            slow.stays_away(&mut reading).await;
        }
        let (read, ()) =
            tokio::join!(reading.read(slow.read()), async { slow.comes.send("secret").unwrap() });
        assert_eq!((read.unwrap().as_str(), slow.begun.load(Ordering::SeqCst)), ("secret", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_came_when_nobody_waited_any_more_is_read_anew() {
        let (slow, mut reading) = (Slow::new(), SecretReader::default());
        slow.stays_away(&mut reading).await;
        slow.comes.send("outdated").unwrap();
        while reading.0.as_ref().is_some_and(|reading| !reading.is_finished()) {
            std::thread::yield_now();
        }
        slow.comes.send("new").unwrap();
        assert_eq!(reading.read(slow.read()).await.unwrap(), "new");
    }

    #[tokio::test]
    async fn a_secret_in_a_file_is_read_at_each_login() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (secret, mut reading) = (Secret::File(file.path().into()), SecretReader::default());
        for text in ["first", "second"] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(reading.reveal(&secret).await.unwrap(), text);
        }
        assert_eq!(reading.reveal(&"third".into()).await.unwrap(), "third");
    }
}
