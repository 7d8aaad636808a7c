//! Leader election: of several processes that run side by side, one works and the others stand by.
//!
//! The rules are `election`, told the time and free of I/O; `campaign` is the shell that talks to the API server. What the
//! rest of the program sees is the [`Term`]: each handler, between any two of its steps, and each write look at its
//! deadline. What was sent before it and arrives after it is refused by the server, or changes nothing that stands.

mod campaign;
mod clock;
mod election;
mod in_term;
mod lease;
mod loss;
mod server;
mod status;
mod term;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::config::LeaderElection;
use crate::identity::random;
use campaign::Campaign;
use election::{Election, Timing};
use server::LeaseServer;

#[cfg(test)]
pub(crate) use clock::BootTime;
pub use in_term::InTerm;
pub use loss::Loss;
pub use status::{Role, Status};
pub use term::{NotLeading, Term};

/// How long the API server may take for one answer; of a renewal at most half the time that there is for it.
const ANSWER: Duration = Duration::from_secs(10);

/// This process's part in the election. When it is dropped, the lease is left to run out.
pub(crate) struct Leadership {
    term: Term,
    status: watch::Receiver<Status>,
    stop: CancellationToken,
    /// None where there is no election.
    campaign: Option<AbortOnDropHandle<()>>,
}

impl Leadership {
    /// Takes part in the election that the options describe, if they do, under the name `identity`. `client` must not be
    /// behind the fence.
    pub(crate) fn start(options: &LeaderElection, identity: &str, client: Client) -> Self {
        let stop = CancellationToken::new();
        if !options.enabled {
            let (_, status) = watch::channel(Status::new(Role::Unopposed));
            return Self { term: Term::for_ever(), status, stop, campaign: None };
        }
        let term = Term::not_begun();
        let (sender, status) = watch::channel(Status::new(Role::Candidate));
        let timing = Timing {
            lease_duration: options.lease_duration.into(),
            renew_deadline: options.renew_deadline.into(),
            retry_period: options.retry_period.into(),
        };
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        info!(identity, namespace, lease = options.lease_name, "taking part in the election");
        let campaign = Campaign {
            server: LeaseServer {
                leases: Api::namespaced(client, &namespace),
                name: options.lease_name.clone(),
                limit: ANSWER.min(timing.renew_deadline / 2),
            },
            election: Election::new(identity.to_owned(), timing, random()),
            term: term.clone(),
            status: sender,
            stop: stop.clone(),
            changes: None,
            missed: false,
        };
        let campaign = AbortOnDropHandle::new(tokio::spawn(campaign.run()));
        Self { term, status, stop, campaign: Some(campaign) }
    }

    /// For how long this process may act.
    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// How the election stands, now and whenever that changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Ends when this process does not lead any more.
    pub(crate) async fn lost(&self) -> Loss {
        if self.campaign.is_none() {
            return pending().await;
        }
        let mut status = self.subscribe();
        let ended = status.wait_for(|status| matches!(status.role, Role::Ended(_))).await;
        match ended.as_deref() {
            Ok(Status { role: Role::Ended(Some(loss)), .. }) => loss.clone(),
            _ => Loss::Abandoned,
        }
    }

    /// Gives the lease up, if this process has it: another one takes over at once. Nothing may be done after this.
    pub(crate) async fn release(self) {
        self.stop.cancel();
        if let Some(campaign) = self.campaign {
            // A panic of the task leaves the lease to run out, as its end by any other cause does.
            let _ = campaign.await;
        }
    }
}
