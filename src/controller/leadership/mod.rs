//! Leader election by Lease: of several replicas one is the leader, the others are standbys.
//!
//! [`Elector`] holds the rules, free of I/O and with the time passed in; [`ElectionLoop`] applies them to the API server. The
//! rest of the program sees the [`Term`]: each handler, before each poll, and each write check its deadline. A write that was sent
//! before the deadline and arrives after it is rejected by the server or is harmless. A process that lost the lease takes part
//! again under another identity and in a new term.

mod election_loop;
mod elector;
mod lease;
mod status;

#[cfg(test)]
mod tests;

use std::future::pending;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info};

use crate::config::LeaderElectionOptions;
use crate::term::Term;
use election_loop::ElectionLoop;
use elector::{Elector, Timing};
use lease::LeaseClient;

pub use status::{ElectionStatus, LossReason, Role};

/// The longest time that the API server may take for one request; for a renewal at most half of the renew deadline.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// This process's participation in the election for one term. Dropping it leaves the lease to expire.
pub(super) struct ElectionHandle {
    term: Term,
    status: watch::Sender<ElectionStatus>,
    stop: CancellationToken,
    /// `None` without leader election, and after the end of the election loop.
    task: Option<AbortOnDropHandle<Option<LossReason>>>,
}

/// The status of the election before this process takes part.
pub(super) fn initial_status(options: &LeaderElectionOptions) -> watch::Sender<ElectionStatus> {
    let role = if options.enabled { Role::Candidate } else { Role::Unopposed };
    watch::Sender::new(ElectionStatus::new(role))
}

impl ElectionHandle {
    /// Takes part in the election, if `options` enable it, under `identity`, which no process has used before. `client` must not be
    /// fenced. Changes are published in `status`.
    pub(super) fn start(
        options: &LeaderElectionOptions,
        identity: &str,
        client: Client,
        status: &watch::Sender<ElectionStatus>,
    ) -> Self {
        let (status, stop) = (status.clone(), CancellationToken::new());
        if !options.enabled {
            return Self { term: Term::unlimited(), status, stop, task: None };
        }
        status.send_if_modified(|status| {
            let has_ended = matches!(status.role, Role::Ended(_));
            if has_ended {
                status.set_role(Role::Candidate);
            }
            has_ended
        });
        let term = Term::pending();
        let timing = Timing {
            lease_duration: options.lease_duration.into(),
            renew_deadline: options.renew_deadline.into(),
            retry_period: options.retry_period.into(),
        };
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        info!(identity, namespace, lease = options.lease_name, "taking part in the leader election");
        let election_loop = ElectionLoop {
            leases: LeaseClient {
                api: Api::namespaced(client, &namespace),
                name: options.lease_name.clone(),
                timeout: REQUEST_TIMEOUT.min(timing.renew_deadline / 2),
            },
            elector: Elector::new(identity.to_owned(), timing),
            term: term.clone(),
            status: status.clone(),
            stop: stop.clone(),
            changes: None,
            unconfirmed: false,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(election_loop.run()));
        Self { term, status, stop, task: Some(task) }
    }

    /// The term during which this process may act.
    pub(super) fn term(&self) -> &Term {
        &self.term
    }

    /// The status of the election, now and after each change.
    pub(super) fn subscribe(&self) -> watch::Receiver<ElectionStatus> {
        self.status.subscribe()
    }

    /// Completes when this process was the leader and lost the lease. Its term has ended then.
    pub(super) async fn lost(&mut self) -> LossReason {
        let Some(task) = &mut self.task else { return pending().await };
        let ended = task.await;
        self.task = None;
        if let Ok(Some(reason)) = ended {
            return reason;
        }
        self.term.end();
        error!("the election loop ended unexpectedly");
        self.status.send_modify(|status| status.set_role(Role::Ended(Some(LossReason::LoopEnded))));
        LossReason::LoopEnded
    }

    /// Releases the lease if this process holds it, so that another one takes over at once. Nothing may act afterwards.
    pub(super) async fn release(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            // If the task panicked, the lease is left to expire.
            let _ = task.await;
        }
    }
}
