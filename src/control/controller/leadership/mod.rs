//! Leader election with a Kubernetes `Lease`: one of several replicas is the leader, the others are standbys.
//!
//! [`Elector`] contains the rules; it does no I/O and gets the time as an argument. [`ElectionLoop`] applies the rules to the API server.
//! The other parts of the program use the [`Term`], whose deadline is checked before each poll of a handler and before each write. A write
//! that was sent before the deadline and arrives after it is rejected by the server or is harmless. A process that lost the lease takes
//! part again with another identity and in a new term. It need not wait for its own previous lease to expire.

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

use crate::base::config::LeaderElectionOptions;
use crate::engine::term::Term;
use election_loop::ElectionLoop;
use elector::{Elector, Timing};
use lease::LeaseClient;

pub use status::{ElectionStatus, LossReason, Role};

/// The time limit of one request for the lease. A request takes at most half of the renew deadline, if that is shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The participation of this process in the election for one term. If the handle is dropped, the lease is not released and expires.
pub(super) struct ElectionHandle {
    term: Term,
    status: watch::Sender<ElectionStatus>,
    stop: CancellationToken,
    /// The election loop; `None` without leader election, and after the loop has ended.
    task: Option<AbortOnDropHandle<Option<LossReason>>>,
}

/// Creates the channel that publishes the status of the election, with the role that this process has before it takes part.
pub(super) fn initial_status(options: &LeaderElectionOptions) -> watch::Sender<ElectionStatus> {
    let role = if options.enabled { Role::Candidate } else { Role::Unopposed };
    watch::Sender::new(ElectionStatus::new(role))
}

impl ElectionHandle {
    /// Starts a task that takes part in the election, if `options` enable it; otherwise the term never ends. `identity`, the holderIdentity
    /// in the Lease, must not have been used by any process before; `previous` is the identity of this process in its previous term, if
    /// there was one. `client` must not check the leadership term. Changes are published in `status`.
    pub(super) fn start(
        options: &LeaderElectionOptions,
        identity: &str,
        previous: Option<String>,
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
            elector: Elector::new(identity.to_owned(), previous, timing),
            term: term.clone(),
            status: status.clone(),
            stop: stop.clone(),
            changes: None,
            unconfirmed: false,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(election_loop.run()));
        Self { term, status, stop, task: Some(task) }
    }

    /// Returns the term during which this process may write.
    pub(super) fn term(&self) -> &Term {
        &self.term
    }

    /// Completes when this process was the leader and lost the lease, or when the election loop panicked; never without leader election.
    /// The term has ended then.
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

    /// Releases the lease if this process holds it, so that another process takes over at once. Nothing may be written after that.
    pub(super) async fn release(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            // If the task panicked, the lease is left to expire.
            let _ = task.await;
        }
    }
}
