//! Does what the rules of the election say: the thin shell between them, the clock and the API server.

use std::future::pending;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::WatchEvent;
use staffetta_handler::{HandlerError, causes};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::clock::BootTime;
use super::election::{Election, Outcome, Step};
use super::lease::{Draft, Sighting};
use super::loss::Loss;
use super::server::{Changes, LeaseServer};
use super::status::{Role, Status};
use super::term::Term;

/// One participant at work.
pub(super) struct Campaign {
    pub(super) server: LeaseServer,
    pub(super) election: Election,
    pub(super) term: Term,
    pub(super) status: watch::Sender<Status>,
    /// Tells it to give the lease up, if it has it, and to end.
    pub(super) stop: CancellationToken,
    /// What the server tells of the lease by itself. Only a candidate listens.
    pub(super) changes: Option<Changes>,
    /// Whether the last write was not done, as far as is known.
    pub(super) missed: bool,
}

impl Campaign {
    /// Takes part until it is told to end, or until it has led and does so no more: then it answers why.
    pub(super) async fn run(mut self) -> Option<Loss> {
        while !self.stop.is_cancelled() {
            match self.election.step(BootTime::now()) {
                Step::Wait(until) => self.wait(until).await,
                Step::Look => self.look().await,
                Step::Write(draft) => self.write(&draft).await,
                Step::StandDown(loss) => {
                    self.stand_down(&loss);
                    return Some(loss);
                }
            }
        }
        self.give_up().await;
        None
    }

    /// Waits, and listens meanwhile.
    async fn wait(&mut self, until: BootTime) {
        let changes = &mut self.changes;
        let change = async {
            match changes {
                Some(changes) => changes.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            change = change => self.heard(change),
            () = tokio::time::sleep(until - BootTime::now()) => {}
        }
    }

    fn heard(&mut self, change: Option<kube::Result<WatchEvent<Lease>>>) {
        let now = BootTime::now();
        match change {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                self.election.saw(now, Some(Sighting::of(lease)));
                self.tell();
            }
            Some(Ok(WatchEvent::Deleted(_))) => {
                self.election.saw(now, None);
                self.tell();
            }
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                debug!("the watch of the lease ended");
                self.changes = None;
                self.election.is_deaf(now);
            }
        }
    }

    /// Reads the lease and listens for its changes from there.
    async fn look(&mut self) {
        let Some(seen) = self.stop.run_until_cancelled(self.server.read()).await else { return };
        let now = BootTime::now();
        match seen {
            Ok(seen) => {
                self.changes = seen.as_ref().map(|seen| self.server.changes_since(&seen.version));
                self.election.saw(now, seen);
                if self.changes.is_none() {
                    self.election.is_deaf(now);
                }
                self.missed &= self.election.deadline().is_some();
                self.well();
            }
            Err(error) => {
                self.election.saw_nothing(now);
                self.trouble("the lease cannot be read", &error);
            }
        }
        self.tell();
    }

    /// Takes or renews the lease.
    async fn write(&mut self, draft: &Draft) {
        let sent = BootTime::now();
        let at_most = self.election.deadline().map_or(Duration::MAX, |deadline| deadline - sent);
        let result = self.server.write(draft, at_most).await;
        let now = BootTime::now();
        let outcome = match result {
            Ok(outcome) => {
                self.well();
                outcome
            }
            Err(error) => {
                self.trouble("the lease cannot be written", &error);
                Outcome::Failed
            }
        };
        let done = matches!(outcome, Outcome::Written(_));
        let missed = std::mem::replace(&mut self.missed, !done);
        if done && draft.transitions.is_none() {
            self.status.send_modify(|status| {
                status.renewals += 1;
                status.slow_renewals += u64::from(missed);
            });
        }
        self.election.wrote(sent, now, outcome);
        if let Some(deadline) = self.election.deadline() {
            self.term.lasts_until(deadline);
            self.changes = None;
        }
        self.tell();
    }

    /// Leaves the lease to whoever wants it. Nothing may be done under it any more.
    async fn give_up(mut self) {
        self.term.end();
        let released = tokio::time::timeout(self.server.limit, self.release()).await;
        if let Ok(Err(error)) = released {
            warn!(error = causes(&*error), "the lease cannot be given up; others wait until it runs out");
        }
        self.status.send_modify(|status| status.becomes(Role::Ended(None)));
    }

    async fn release(&mut self) -> Result<(), HandlerError> {
        loop {
            if self.missed {
                let seen = self.server.read().await?;
                self.election.saw(BootTime::now(), seen);
            }
            let Some(draft) = self.election.release() else { return Ok(()) };
            match self.server.write(&draft, Duration::MAX).await? {
                Outcome::Conflict => self.missed = true,
                Outcome::Written(_) | Outcome::Missing | Outcome::Failed => {
                    info!("the lease is given up");
                    return Ok(());
                }
            }
        }
    }

    fn stand_down(&self, loss: &Loss) {
        self.term.end();
        error!(reason = %loss, "this process does not lead any more");
        self.status.send_modify(|status| status.becomes(Role::Ended(Some(loss.clone()))));
    }

    /// Tells in what role this process is, if that is news. Of the end, its own line tells.
    fn tell(&self) {
        if self.election.is_over() {
            return;
        }
        let role = match (self.election.deadline(), self.election.holder()) {
            (Some(_), _) => Role::Leader,
            (None, None | Some("")) => Role::Candidate,
            (None, Some(holder)) => Role::Standby { holder: holder.to_owned() },
        };
        self.status.send_if_modified(|status| {
            if status.role == role {
                return false;
            }
            match &role {
                Role::Leader => info!("this process leads"),
                Role::Standby { holder } => info!(holder, "standing by"),
                Role::Unopposed | Role::Candidate | Role::Ended(_) => {}
            }
            status.becomes(role);
            true
        });
    }

    fn trouble(&self, what: &'static str, error: &HandlerError) {
        let cause = causes(&**error);
        let trouble = Some(format!("{what}: {cause}"));
        self.status.send_if_modified(|status| {
            if status.trouble.is_none() || status.role == Role::Leader {
                warn!(error = cause, "{what}");
            }
            let is_news = status.trouble != trouble;
            status.trouble = trouble;
            is_news
        });
    }

    fn well(&self) {
        self.status.send_if_modified(|status| status.trouble.take().is_some());
    }
}
