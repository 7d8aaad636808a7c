//! How far Octavia is with load balancers: one list answers for many.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use staffetta_driver::{ClusterId, DriverError, LoadBalancerId, ProjectId, Reason, Uid};
use tokio::time::Instant;

use super::api::Octavia;
use super::board::{Board, End, FIRST_STEP, Known};
use super::filter::filter;
use super::wire::LoadBalancerTold;
use crate::error::OpenStackError;
use crate::neutron::together::Together;

const FIELDS: [&str; 2] = ["id", "provisioning_status"];
const STEP: &str = "read the state of a load balancer";

/// Looks at load balancers on behalf of all who wait for one.
#[derive(Debug)]
pub(super) struct Waiting {
    octavia: Octavia,
    cluster: ClusterId,
    board: Mutex<Board>,
    looks: Together<LoadBalancerId, Result<Known, DriverError>>,
}

impl Waiting {
    /// Nobody waits yet.
    pub(super) fn new(octavia: Octavia, cluster: ClusterId) -> Self {
        Self { octavia, cluster, board: Mutex::default(), looks: Together::default() }
    }

    /// A load balancer is being made in a project, until this is dropped. Where too many are, it has to wait for its turn.
    pub(super) fn making(&self, owner: &Uid, project: &ProjectId) -> Result<Making<'_>, DriverError> {
        match self.board().begins(owner, project, Instant::now()) {
            Ok(()) => Ok(Making { waiting: self, project: project.clone() }),
            Err(ask_again) => {
                let detail = format!(
                    "others are being made in the project {project}, where Octavia takes in one after the other"
                );
                Err(DriverError::new(Reason::Queued, "make a load balancer").detail(detail).after(ask_again))
            }
        }
    }

    /// A change of a load balancer was accepted.
    pub(super) fn changed(&self, id: &LoadBalancerId) {
        self.board().changed(id, Instant::now());
    }

    /// Nobody has to wait for a load balancer any more.
    pub(super) fn forget(&self, id: &LoadBalancerId) {
        self.board().forget(id);
    }

    /// How far Octavia is. It is asked only when what is known is too old.
    pub(super) async fn known(&self, id: &LoadBalancerId) -> Result<Known, DriverError> {
        let known = self.board().ask(id, Instant::now());
        match known {
            Some(known) => Ok(known),
            None => self.looks.call(id.clone(), |ids| self.look(ids)).await,
        }
    }

    /// Whether a load balancer takes a change, as far as is known. Of one for which nobody waits Octavia itself will tell.
    pub(super) async fn takes(&self, id: &LoadBalancerId, step: &'static str) -> Result<(), DriverError> {
        if self.board().waits(id) { told(self.known(id).await?, id, step) } else { Ok(()) }
    }

    /// Octavia said that a load balancer takes no change. Why, its state tells.
    pub(super) async fn refused(&self, id: &LoadBalancerId, step: &'static str) -> DriverError {
        self.board().forget(id);
        let known = match self.known(id).await {
            Ok(Known::Over(End::Active)) => Known::Busy { ask_again: FIRST_STEP },
            Ok(known) => known,
            Err(error) => return error,
        };
        told(known, id, step).err().unwrap_or_else(|| busy(id, step))
    }

    /// What is known of these by now: another look may have shown it while their callers waited for this one. At the others,
    /// and at what else is due soon, it looks.
    async fn look(&self, ids: Vec<LoadBalancerId>) -> Vec<Result<Known, DriverError>> {
        let began = Instant::now();
        let mut known: HashMap<&LoadBalancerId, Known> = HashMap::new();
        let lot = {
            let mut board = self.board();
            known.extend(ids.iter().filter_map(|id| Some((id, board.ask(id, began)?))));
            let unknown: Vec<_> = ids.iter().filter(|id| !known.contains_key(id)).cloned().collect();
            if unknown.is_empty() { Vec::new() } else { board.lot(&unknown, began) }
        };
        let seen = if lot.is_empty() { Ok(()) } else { self.see(lot, began).await };
        let mut board = self.board();
        let answer = |id| match (known.get(id), &seen) {
            (Some(known), _) => Ok(*known),
            (None, Ok(())) => Ok(board.answer(id, Instant::now())),
            (None, Err(error)) => Err(error.clone()),
        };
        ids.iter().map(answer).collect()
    }

    /// Looks at a single one by itself, at several by one list, and at those that it does not have one by one.
    async fn see(&self, lot: Vec<LoadBalancerId>, began: Instant) -> Result<(), DriverError> {
        let found = self.find(&lot).await?;
        let sights: HashMap<&LoadBalancerId, Option<End>> =
            found.iter().map(|told| (&told.id, end(told))).collect();
        let seen = lot.into_iter().map(|id| {
            let end = sights.get(&id).copied().unwrap_or(Some(End::Gone));
            (id, end)
        });
        self.board().saw(seen, began);
        Ok(())
    }

    async fn find(&self, lot: &[LoadBalancerId]) -> Result<Vec<LoadBalancerTold>, OpenStackError> {
        if let [only] = lot {
            let found = self.octavia.load_balancer(STEP, only, &FIELDS).await?;
            return Ok(found.into_iter().collect());
        }
        let filter = filter(self.octavia.features().await?, &self.cluster, None);
        let mut found = self.octavia.load_balancers(STEP, &filter, &FIELDS).await?;
        // One that is not listed is gone, or bears no mark yet.
        let listed: HashSet<&LoadBalancerId> = found.iter().map(|told| &told.id).collect();
        let others = lot.iter().filter(|id| !listed.contains(id));
        let others = try_join_all(others.map(|id| self.octavia.load_balancer(STEP, id, &FIELDS))).await?;
        found.extend(others.into_iter().flatten());
        Ok(found)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A load balancer that is being made.
#[derive(Debug)]
pub(super) struct Making<'a> {
    waiting: &'a Waiting,
    project: ProjectId,
}

impl Making<'_> {
    /// Octavia makes it, and has told its id.
    pub(super) fn made(self, id: &LoadBalancerId) {
        self.waiting.board().made(id, Instant::now());
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.waiting.board().ends(&self.project, Instant::now());
    }
}

/// What the state of a load balancer, as Octavia writes it, means; none while it is busy.
pub(super) fn end(told: &LoadBalancerTold) -> Option<End> {
    match told.provisioning_status.as_str() {
        "ACTIVE" => Some(End::Active),
        "ERROR" => Some(End::Error),
        "DELETED" => Some(End::Gone),
        _ => None,
    }
}

/// What that means to somebody who wants to change the load balancer.
fn told(known: Known, id: &LoadBalancerId, step: &'static str) -> Result<(), DriverError> {
    let failed = |reason, detail: &str| {
        Err(DriverError::new(reason, step).detail(format!("the load balancer {id} {detail}")))
    };
    match known {
        Known::Over(End::Active) => Ok(()),
        Known::Over(End::Error) => failed(Reason::Refused, "is in the state ERROR"),
        Known::Over(End::Gone) => failed(Reason::NotFound, "does not exist any more"),
        Known::Busy { ask_again } => Err(busy(id, step).after(ask_again)),
    }
}

/// A load balancer takes no change at this moment.
pub(super) fn busy(id: &LoadBalancerId, step: &'static str) -> DriverError {
    let detail = format!("the load balancer {id} is being changed");
    DriverError::new(Reason::Conflict, step).detail(detail).after(FIRST_STEP)
}
