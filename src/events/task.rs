//! The one task that sends Events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use staffetta_handler::{Backoff, BackoffPolicy, causes};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::aggregator::{Aggregator, Answer, Next, Posting, Step};
use super::counts::{EventCounts, EventResult};
use super::notice::Notice;
use super::refusals::REST;
use super::sender::{self, SendError, Sender};

/// The waits after the server failed.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), limit: None };

/// See the module.
pub(super) struct Task {
    pub(super) aggregator: Aggregator,
    pub(super) sender: Sender,
    pub(super) counts: Arc<EventCounts>,
    pub(super) trouble: Option<Trouble>,
}

/// The server does not take Events.
pub(super) struct Trouble {
    backoff: Backoff,
    until: Instant,
}

/// A posting that is under way.
type UnderWay = Pin<Box<dyn Future<Output = (Box<Posting>, Result<(), SendError>)> + Send>>;

impl Task {
    /// Sends what is told, until `stop`; then what is due by then.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Notice>, stop: CancellationToken) {
        let mut under_way: Option<UnderWay> = None;
        let mut open = true;
        loop {
            let mut wake = None;
            if under_way.is_none() {
                match self.next() {
                    Next::Send(posting) => under_way = Some(self.send(posting)),
                    _ if !open => break,
                    Next::At(time) => wake = Some(time),
                    Next::Nothing => {}
                }
            }
            tokio::select! {
                told = inbox.recv(), if open => match told {
                    Some(notice) => self.take(notice),
                    None => open = false,
                },
                (posting, sent) = ended(under_way.as_mut()) => {
                    under_way = None;
                    self.answered(*posting, &sent);
                }
                () = until(wake) => {}
                () = stop.cancelled(), if !inbox.is_closed() => inbox.close(),
            }
        }
        if self.aggregator.waiting() > 0 {
            info!(events = self.aggregator.waiting(), "not all Kubernetes Events were sent");
        }
    }

    fn take(&mut self, notice: Notice) {
        if !self.aggregator.take(notice, Instant::now()) {
            self.counts.count(EventResult::Dropped);
        }
    }

    fn next(&mut self) -> Next {
        let now = Instant::now();
        match &self.trouble {
            Some(trouble) if trouble.until > now => Next::At(trouble.until),
            _ => self.aggregator.next(now),
        }
    }

    fn send(&self, posting: Box<Posting>) -> UnderWay {
        let sender = self.sender.clone();
        Box::pin(async move {
            let sent = sender.send(&posting).await;
            (posting, sent)
        })
    }

    fn answered(&mut self, posting: Posting, sent: &Result<(), SendError>) {
        let answer = sender::answer(posting.step, sent);
        match (answer, sent) {
            (Answer::Done, _) => {
                match posting.step {
                    Step::Create => self.counts.count(EventResult::Created),
                    Step::Update => self.counts.count(EventResult::Updated),
                }
                let namespace = posting.notice.kept_in();
                if self.aggregator.refusals.took(namespace) {
                    info!(namespace, "Kubernetes Events are sent again");
                }
                if self.trouble.take().is_some() {
                    info!("Kubernetes Events are sent again");
                }
            }
            (Answer::Failed, Err(error)) => self.failed(&posting, error),
            (Answer::Refused, Err(error)) => {
                self.counts.count(EventResult::Refused);
                let regarding = &posting.notice.regarding;
                debug!(
                    kind = regarding.kind,
                    namespace = regarding.namespace,
                    name = regarding.name,
                    reason = posting.notice.reason,
                    error = causes(error),
                    "the server does not want a Kubernetes Event"
                );
            }
            _ => {}
        }
        self.aggregator.answered(posting, answer, Instant::now());
    }

    /// Who is not let into a namespace leaves that alone, and the server after any other failure.
    fn failed(&mut self, posting: &Posting, error: &SendError) {
        self.counts.count(EventResult::Failed);
        if !sender::is_forbidden(error) {
            return self.rest(error);
        }
        let namespace = posting.notice.kept_in();
        match self.aggregator.refusals.refused(namespace, Instant::now()) {
            Some(true) => {
                let again_s = REST.as_secs_f64();
                warn!(namespace, error = causes(error), again_s, "Kubernetes Events cannot be sent");
            }
            Some(false) => debug!(namespace, error = causes(error), "Kubernetes Events still cannot be sent"),
            None => self.rest(error),
        }
    }

    /// Sends nothing for a while. One warning for the whole trouble.
    fn rest(&mut self, error: &SendError) {
        let first = self.trouble.is_none();
        let mut backoff = self.trouble.take().map_or_else(|| BACKOFF.start(), |trouble| trouble.backoff);
        let wait = backoff.next_wait(sender::rest(error)).unwrap_or(BACKOFF.max);
        let (error, again_s) = (causes(error), wait.as_secs_f64());
        if first {
            warn!(error, again_s, "Kubernetes Events cannot be sent");
        } else {
            debug!(error, again_s, "Kubernetes Events still cannot be sent");
        }
        self.trouble = Some(Trouble { backoff, until: Instant::now() + wait });
    }
}

async fn ended(under_way: Option<&mut UnderWay>) -> (Box<Posting>, Result<(), SendError>) {
    match under_way {
        Some(under_way) => under_way.await,
        None => std::future::pending().await,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
