//! Leader election: of several processes that run side by side, one works and the others stand by.
//!
//! The rules are `election`, told the time and free of I/O; `campaign` is the shell that talks to the API server. What the
//! rest of the program sees is the [`Term`]: each handler, between any two of its steps, and each write look at its
//! deadline. What was sent before it and arrives after it is refused by the server, or changes nothing that stands. Who has
//! lost the lease takes part anew, under another name and for a term of its own.

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
use tracing::{error, info};

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

/// This process's part in the election, until it has led and does so no more. When it is dropped, the lease is left to run
/// out.
pub(crate) struct Leadership {
    term: Term,
    status: watch::Sender<Status>,
    stop: CancellationToken,
    /// None where there is no election, and when it is over.
    campaign: Option<AbortOnDropHandle<Option<Loss>>>,
}

/// How the election stands before this process takes part in it, if the options want one.
pub(crate) fn not_begun(options: &LeaderElection) -> watch::Sender<Status> {
    let role = if options.enabled { Role::Candidate } else { Role::Unopposed };
    watch::Sender::new(Status::new(role))
}

impl Leadership {
    /// Takes part in the election that the options describe, if they do, under the name `identity`, which nobody ever had.
    /// How it stands is told in `status`. `client` must not be behind the fence.
    pub(crate) fn start(
        options: &LeaderElection,
        identity: &str,
        client: Client,
        status: &watch::Sender<Status>,
    ) -> Self {
        let (status, stop) = (status.clone(), CancellationToken::new());
        if !options.enabled {
            return Self { term: Term::for_ever(), status, stop, campaign: None };
        }
        status.send_if_modified(|status| {
            let anew = matches!(status.role, Role::Ended(_));
            if anew {
                status.becomes(Role::Candidate);
            }
            anew
        });
        let term = Term::not_begun();
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
            status: status.clone(),
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
        self.status.subscribe()
    }

    /// Ends when this process has led and does so no more; its term is over then.
    pub(crate) async fn lost(&mut self) -> Loss {
        let Some(campaign) = &mut self.campaign else { return pending().await };
        let ended = campaign.await;
        self.campaign = None;
        if let Ok(Some(loss)) = ended {
            return loss;
        }
        self.term.end();
        error!("the election ended by itself");
        self.status.send_modify(|status| status.becomes(Role::Ended(Some(Loss::Abandoned))));
        Loss::Abandoned
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
