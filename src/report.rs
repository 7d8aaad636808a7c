//! Where failures are told: one line in the log, a Kubernetes Event on the object, and another chance for it.
//!
//! What passes by itself is nobody's business: while an object has failed for less than [`PATIENCE`], and the next attempt is
//! not far away, nothing is said but at level `debug`. After that a person learns why it is stuck, and, once it works,
//! that it does.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use staffetta_handler::{
    AnyEvent, Change, HandlerError, Identity, Message, Report, ResyncPolicy, TimedOut, Trouble, Turn,
    Undecodable, causes,
};
use tracing::{debug, error, info, warn};

use crate::events::{Notice, Recorder, Weight, reference};
use crate::observers::{Observers, OnUndecodable, log_undecodable};

/// For how long an object may fail before a person is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long an object may have failed by its next attempt before a person is told.
const LONGEST: Duration = Duration::from_secs(30);

/// The reason of the Event by which a person learns that an object works again.
pub(crate) const RECOVERED: &str = "Recovered";

/// The reason of the Event by which a person learns that no handler gets to see an object.
pub(crate) const UNDECODABLE: &str = "ObjectUndecodable";

/// Tells the failures of all handlers.
pub(crate) struct Reports {
    recorder: Option<Recorder>,
}

impl Reports {
    /// Without a recorder, there are no Kubernetes Events.
    pub(crate) fn new(recorder: Option<Recorder>) -> Self {
        Self { recorder }
    }
}

impl Observers for Reports {
    fn report(&self, handler: &str, resync: ResyncPolicy) -> Arc<dyn Report<AnyEvent>> {
        Arc::new(FailureReport { handler: handler.into(), resync, recorder: self.recorder.clone() })
    }

    fn undecodable(&self) -> OnUndecodable {
        let (recorder, watch) = (self.recorder.clone(), "watch".into());
        Box::new(move |object: &Undecodable| {
            log_undecodable(object);
            if let Some(recorder) = &recorder {
                let (regarding, note) = (reference(&object.identity), (&*object.to_string(), ""));
                recorder.tell(Notice::new(regarding, Weight::Warning, UNDECODABLE, &watch, note));
            }
        })
    }
}

/// Tells the failures of one handler.
struct FailureReport {
    handler: Arc<str>,
    resync: ResyncPolicy,
    recorder: Option<Recorder>,
}

impl Report<AnyEvent> for FailureReport {
    fn failed(&self, event: &AnyEvent, error: &HandlerError, turn: &Turn<'_>) {
        let (subject, again) = (event.subject(), self.resync.delay_after(error, turn.failures()));
        let (text, reason) = (text(error, turn), error.reason());
        error!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
            handler = &*self.handler, change = ?event.change(), attempt = turn.attempts(), reason,
            again_s = again.as_secs(), error = &*text, "handling failed");
        turn.tell(concerned(event, error));
        let then = format!("; it is handled again in {}, or when it changes", Rounded(again));
        self.warn(event, error, (&text, &then));
        turn.push_again(again);
    }

    fn will_retry(&self, event: &AnyEvent, error: &HandlerError, wait: Duration, turn: &Turn<'_>) {
        let (subject, text, reason) = (event.subject(), text(error, turn), error.reason());
        let attempt = turn.attempts();
        let since = turn.trouble().map_or(Duration::ZERO, |trouble| trouble.since.elapsed());
        let lasts = since.saturating_add(hung(error));
        let worth_telling = lasts >= PATIENCE || lasts.saturating_add(wait) >= LONGEST;
        if worth_telling && turn.tell(concerned(event, error)) {
            warn!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
                handler = &*self.handler, change = ?event.change(), attempt, reason,
                again_s = wait.as_secs_f64(), error = &*text, "handling fails and is repeated");
        } else {
            debug!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
                handler = &*self.handler, attempt, reason, again_s = wait.as_secs_f64(), error = &*text, "will try again");
        }
        if worth_telling {
            let then = format!("; attempt {} follows in {}", attempt.saturating_add(1), Rounded(wait));
            self.warn(event, error, (&text, &then));
        }
    }

    fn recovered(&self, event: &AnyEvent, turn: &Turn<'_>) {
        let (Some(told), Some(trouble)) = (turn.told(), turn.trouble()) else { return };
        let Trouble { attempts, since, .. } = &*trouble;
        info!(kind = %told.kind, namespace = told.namespace, name = told.name, uid = told.uid,
            handler = &*self.handler, attempt = attempts, "handling works again");
        // Nobody looks at what is gone.
        if let Some(recorder) = self.recorder.as_ref().filter(|_| event.change() != Change::Deleted) {
            let note = format!(
                "handled again after {attempts} failed {} in {}",
                if *attempts == 1 { "attempt" } else { "attempts" },
                Rounded(since.elapsed())
            );
            let notice = Notice::new(reference(&told), Weight::Normal, RECOVERED, &self.handler, (&note, ""));
            recorder.tell(notice);
        }
    }
}

impl FailureReport {
    fn warn(&self, event: &AnyEvent, error: &HandlerError, note: (&str, &str)) {
        if let Some(recorder) = &self.recorder {
            let regarding = reference(&concerned(event, error));
            recorder.tell(Notice::new(regarding, Weight::Warning, error.reason(), &self.handler, note));
        }
    }
}

/// The error with its causes, as the turn has put it into words already.
fn text(error: &HandlerError, turn: &Turn<'_>) -> Arc<str> {
    turn.trouble().map_or_else(|| causes(&**error).into(), |trouble| Arc::clone(&trouble.error))
}

/// How long the attempt hung, if that is why it failed.
fn hung(error: &HandlerError) -> Duration {
    let error: &(dyn Error + 'static) = &**error;
    error.downcast_ref::<TimedOut>().map_or(Duration::ZERO, TimedOut::limit)
}

/// The object at which a person must look.
fn concerned(event: &AnyEvent, error: &HandlerError) -> Identity {
    error.concerns().cloned().unwrap_or_else(|| event.identity())
}

/// A time as a person says it: `90 ms`, `5 s`, `15 min`.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.as_millis()),
            seconds @ 1..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3600),
        }
    }
}

#[cfg(test)]
mod tests;
