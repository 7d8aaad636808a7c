//! Applies the rules of the election: connects [`Elector`], which makes the decisions, with the clock and the API server.

use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::WatchEvent;
use staffetta_handler::{BootTime, HandlerError, bounded, causes};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::elector::{Elector, ElectorAction};
use super::lease::{LeaseChanges, LeaseClient, LeaseOutcome, LeaseUpdate, ObservedLease};
use super::status::{ElectionStatus, LossReason, Role};
use crate::engine::term::Term;

/// The task that takes part in the election for this process.
pub(super) struct ElectionLoop {
    /// The client that reads, watches and writes the lease.
    pub(super) leases: LeaseClient,
    /// The rules that decide the next request.
    pub(super) elector: Elector,
    /// The leadership term of this process, which the loop extends and ends.
    pub(super) term: Term,
    /// The channel that publishes the status: the role of this process, the counters for metrics, and the last error.
    pub(super) status: watch::Sender<ElectionStatus>,
    /// The token that ends the loop when it is cancelled. The loop releases the lease before it ends.
    pub(super) stop: CancellationToken,
    /// The open watch of the lease; `None` for a leader, and for a candidate that must read the lease first or has found that none exists.
    pub(super) changes: Option<LeaseChanges>,
    /// `true` if the last write of the lease failed, or its outcome is not known.
    pub(super) unconfirmed: bool,
}

impl ElectionLoop {
    /// Takes part in the election until `stop` is cancelled (returns `None`), or until the lease is lost (returns the reason).
    pub(super) async fn run(mut self) -> Option<LossReason> {
        while !self.stop.is_cancelled() {
            match self.elector.next_action(BootTime::now()) {
                ElectorAction::Wait(until) => self.wait(until).await,
                ElectorAction::Read => self.read().await,
                ElectorAction::Write(update) => self.write(&update).await,
                ElectorAction::Stop(reason) => {
                    self.end_term(&reason);
                    return Some(reason);
                }
            }
        }
        self.stop_and_release().await;
        None
    }

    /// Waits until the time `until`, until the lease changes, or until the loop is stopped.
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
            change = change => self.changed(change),
            () = tokio::time::sleep(until - BootTime::now()) => {}
        }
    }

    /// Passes an event of the watch of the lease, or the end of the watch, to the elector.
    fn changed(&mut self, change: Option<kube::Result<WatchEvent<Lease>>>) {
        let now = BootTime::now();
        match change {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                self.elector.observe(now, Some(ObservedLease::of(lease)));
                self.publish_role();
            }
            Some(Ok(WatchEvent::Deleted(_))) => {
                self.elector.observe(now, None);
                self.publish_role();
            }
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => {
                debug!("the watch of the lease ended");
                self.changes = None;
                self.elector.watch_ended(now);
            }
        }
    }

    /// Reads the lease and, if it exists, watches it from that version on.
    async fn read(&mut self) {
        let Some(result) = self.stop.run_until_cancelled(self.leases.read()).await else { return };
        let now = BootTime::now();
        match result {
            Ok(lease) => {
                self.changes = lease.as_ref().map(|lease| self.leases.watch_from(&lease.version));
                self.elector.observe(now, lease);
                if self.changes.is_none() {
                    self.elector.watch_ended(now);
                }
                self.unconfirmed &= self.elector.deadline().is_some();
                self.clear_error();
            }
            Err(error) => {
                self.elector.read_failed(now);
                self.record_error("the lease cannot be read", &error);
            }
        }
        self.publish_role();
    }

    /// Sends a write that takes or renews the lease, and extends the term if it succeeds.
    async fn write(&mut self, update: &LeaseUpdate) {
        let sent = BootTime::now();
        let timeout = self.elector.deadline().map_or(Duration::MAX, |deadline| deadline - sent);
        let result = self.leases.write(update, timeout).await;
        let now = BootTime::now();
        let outcome = match result {
            Ok(outcome) => {
                self.clear_error();
                outcome
            }
            Err(error) => {
                self.record_error("the lease cannot be written", &error);
                LeaseOutcome::Failed
            }
        };
        let written = matches!(outcome, LeaseOutcome::Written(_));
        let was_unconfirmed = std::mem::replace(&mut self.unconfirmed, !written);
        if written && update.holder.is_empty() {
            info!(
                "the lease did not exist; it can be taken when a leader that may have held it must have stopped"
            );
        } else if written && update.transitions.is_none() {
            self.status.send_modify(|status| status.slow_renewals += u64::from(was_unconfirmed));
        }
        self.elector.write_completed(sent, now, outcome);
        if let Some(deadline) = self.elector.deadline() {
            self.term.extend(deadline);
            self.changes = None;
        }
        self.publish_role();
    }

    /// Ends the term, and releases the lease within the time limit of a request.
    async fn stop_and_release(mut self) {
        self.term.end();
        if let Err(error) = bounded(self.leases.timeout, Box::pin(self.release())).await {
            warn!(error = causes(&*error), "the lease cannot be released; standbys wait until it expires");
        }
        self.status.send_modify(|status| status.set_role(Role::Ended(None)));
    }

    /// Removes this process as the holder of the lease. After a conflict, or if the outcome of the last write is not known, reads the
    /// lease first.
    async fn release(&mut self) -> Result<(), HandlerError> {
        loop {
            if self.unconfirmed {
                let lease = self.leases.read().await?;
                self.elector.observe(BootTime::now(), lease);
            }
            let Some(update) = self.elector.release() else { return Ok(()) };
            match self.leases.write(&update, Duration::MAX).await? {
                LeaseOutcome::Conflict => self.unconfirmed = true,
                LeaseOutcome::Written(_) | LeaseOutcome::Failed => {
                    info!("the lease is released");
                    return Ok(());
                }
            }
        }
    }

    /// Ends the term because the lease was lost.
    fn end_term(&self, reason: &LossReason) {
        self.term.end();
        error!(%reason, "this process is no longer the leader");
        self.status.send_modify(|status| status.set_role(Role::Ended(Some(reason.clone()))));
    }

    /// Publishes and logs a change of the role in the election, except the end of the term, which [`Self::end_term`] publishes.
    fn publish_role(&self) {
        if self.elector.is_lost() {
            return;
        }
        let role = match (self.elector.deadline(), self.elector.holder()) {
            (Some(_), _) => Role::Leader,
            (None, None) => Role::Candidate,
            (None, Some(holder)) => Role::Standby { holder: holder.to_owned() },
        };
        self.status.send_if_modified(|status| {
            if status.role == role {
                return false;
            }
            match &role {
                Role::Leader => info!("this process is the leader"),
                Role::Standby { holder } => info!(holder, "this process is a standby"),
                Role::Unopposed | Role::Candidate | Role::Ended(_) => {}
            }
            status.set_role(role);
            true
        });
    }

    /// Logs the error of a request for the lease, and publishes it in the status.
    fn record_error(&self, message: &'static str, error: &HandlerError) {
        let cause = causes(&**error);
        let last_error = Some(format!("{message}: {cause}"));
        self.status.send_if_modified(|status| {
            if status.last_error.is_none() || status.role == Role::Leader {
                warn!(error = cause, "{message}");
            }
            let changed = status.last_error != last_error;
            status.last_error = last_error;
            changed
        });
    }

    /// Removes the last error from the status, because a request has succeeded.
    fn clear_error(&self) {
        self.status.send_if_modified(|status| status.last_error.take().is_some());
    }
}
