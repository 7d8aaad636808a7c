//! The provisioning status of load balancers, which shows if they accept changes, and the changes themselves.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;
use staffetta_driver::{ClusterId, DriverError, LoadBalancerId, ProjectId, Reason, Uid};
use tokio::time::Instant;

use super::api::OctaviaApi;
use super::pacing::{LoadBalancerPacing, ProvisioningOperation, ProvisioningOutcome};
use super::tree::outcome;
use super::wire::LoadBalancerBody;
use crate::error::{DriverResult, OpenStackError, Result, StepName};
use crate::poll::{Pacing, PollState, Poller};

/// The fields of a load balancer that are polled.
const FIELDS: &str = "id provisioning_status";
const STEP: &str = "read the status of a load balancer";

/// A poller of the provisioning status of load balancers, which also sends the calls that change a load balancer, unless it is busy.
#[derive(Debug)]
pub(super) struct ProvisioningPoller {
    octavia: OctaviaApi,
    cluster: ClusterId,
    poller: Poller<LoadBalancerId, LoadBalancerPacing>,
}

impl ProvisioningPoller {
    /// Creates a poller for the load balancers of `cluster`, which waits for none yet.
    pub(super) fn new(octavia: OctaviaApi, cluster: ClusterId) -> Self {
        Self { octavia, cluster, poller: Poller::default() }
    }

    /// Admits a creation request of `owner` in a project until the permit is dropped. If too many are in flight, the error is
    /// [`Reason::Queued`] with a retry delay.
    pub(super) fn admit(&self, owner: &Uid, project: &ProjectId) -> DriverResult<CreationPermit<'_>> {
        let now = Instant::now();
        let mut schedule = self.poller.schedule();
        let admitted = schedule.pacing.admit(owner, project, now);
        schedule.update(now);
        admitted.map(|()| CreationPermit { poller: self, project: project.clone() }).map_err(|delay| {
            let detail =
                format!("others are being created in the project {project}, which Octavia serializes");
            DriverError::new(Reason::Queued, "create a load balancer").detail(detail).after(delay)
        })
    }

    /// Records that Octavia has accepted an operation on a load balancer, whose end callers wait for from now on.
    pub(super) fn start(&self, id: &LoadBalancerId, operation: ProvisioningOperation) {
        self.poller.schedule().start(id, operation, Instant::now());
    }

    /// Forgets the operation on a load balancer whose end callers wait for, if there is one.
    pub(super) fn forget(&self, id: &LoadBalancerId) {
        self.poller.schedule().forget(id);
    }

    /// Returns `true` if this process has started the deletion of a load balancer and waits for its end.
    pub(super) fn is_deleting(&self, id: &LoadBalancerId) -> bool {
        self.poller.schedule().get(id).is_some_and(|entry| entry.context == ProvisioningOperation::Delete)
    }

    /// Returns the provisioning status of a load balancer, or the time until the next poll. If it is time for a poll, reads the status from
    /// Octavia first.
    pub(super) async fn state(&self, id: &LoadBalancerId) -> DriverResult<PollState<ProvisioningOutcome>> {
        self.poller.state(id, |ids| self.fetch(ids)).await
    }

    /// Makes a change of a load balancer by `call`, and starts the wait for its end. If an earlier operation that this process waits for
    /// has not ended or has failed, returns an error without the call.
    pub(super) async fn change<T>(
        &self,
        id: &LoadBalancerId,
        step: StepName,
        call: impl Future<Output = Result<T>>,
    ) -> DriverResult<T> {
        self.check_ready(id, step).await?;
        match call.await {
            Ok(answer) => {
                self.start(id, ProvisioningOperation::Update);
                Ok(answer)
            }
            Err(error) => Err(self.explain(id, step, error).await),
        }
    }

    /// Deletes a part of a load balancer (a listener, a pool or a health monitor) by `call`. Returns `false` if the part or its load
    /// balancer does not exist.
    pub(super) async fn delete_part(
        &self,
        id: &LoadBalancerId,
        step: StepName,
        call: impl Future<Output = Result<()>>,
    ) -> DriverResult<bool> {
        match self.change(id, step, call).await {
            Ok(()) => Ok(true),
            Err(error) if error.reason() == Reason::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an error if this process waits for an operation on the load balancer that has not ended or that has failed. If it waits for
    /// none, returns `Ok` without a request.
    pub(super) async fn check_ready(&self, id: &LoadBalancerId, step: StepName) -> DriverResult<()> {
        let awaited = self.poller.schedule().get(id).is_some();
        if awaited { ready(self.state(id).await?, id, step) } else { Ok(()) }
    }

    /// Converts the error of a rejected change. If Octavia rejected it because the load balancer is immutable, reads its status: if the
    /// load balancer is busy or has just become ACTIVE, the returned error has a retry delay; otherwise it says that the load balancer
    /// failed or does not exist any more, or is the error of the read.
    pub(super) async fn explain(
        &self,
        id: &LoadBalancerId,
        step: StepName,
        error: OpenStackError,
    ) -> DriverError {
        let immutable = error.mentions("immutable") || error.mentions("Invalid state");
        if error.status() != Some(409) || !immutable {
            return error.into();
        }
        self.forget(id);
        match self.state(id).await {
            Ok(PollState::Final(ProvisioningOutcome::Active)) => busy(id, step),
            Ok(state) => ready(state, id, step).err().unwrap_or_else(|| busy(id, step)),
            Err(error) => error,
        }
    }

    /// Reads the status of load balancers. A single one is read by its id. Several are read by one list, and those that the list lacks by
    /// their ids, because they may be deleted or not tagged. The map contains `None` for a pending load balancer, and lacks those that do
    /// not exist.
    async fn fetch(
        &self,
        ids: Vec<LoadBalancerId>,
    ) -> Result<HashMap<LoadBalancerId, Option<ProvisioningOutcome>>> {
        let mut found: Vec<LoadBalancerBody> = Vec::new();
        if ids.len() > 1 {
            let filter = self.octavia.features().await?.filter(&self.cluster, None);
            found = self.octavia.list(STEP, &filter, FIELDS).await?;
        }
        let listed: HashSet<&LoadBalancerId> = found.iter().map(|body| &body.id).collect();
        let others = ids.iter().filter(|id| !listed.contains(id));
        let others = try_join_all(others.map(|id| self.octavia.get(STEP, id.as_str(), FIELDS))).await?;
        found.extend(others.into_iter().flatten());
        Ok(found.iter().map(|body| (body.id.clone(), outcome(body))).collect())
    }
}

/// The permission for one creation request of a load balancer in a project. The next request may be admitted when it is dropped.
#[derive(Debug)]
pub(super) struct CreationPermit<'a> {
    poller: &'a ProvisioningPoller,
    project: ProjectId,
}

impl Drop for CreationPermit<'_> {
    fn drop(&mut self) {
        let mut schedule = self.poller.poller.schedule();
        schedule.pacing.finish(&self.project);
        schedule.update(Instant::now());
    }
}

/// Returns an error unless a load balancer in this state accepts a change.
fn ready(state: PollState<ProvisioningOutcome>, id: &LoadBalancerId, step: StepName) -> DriverResult<()> {
    let failed = |reason, detail: &str| {
        Err(DriverError::new(reason, step).detail(format!("the load balancer {id} {detail}")))
    };
    match state {
        PollState::Final(ProvisioningOutcome::Active) => Ok(()),
        PollState::Final(ProvisioningOutcome::Error) => failed(Reason::Refused, "is in the state ERROR"),
        PollState::Final(ProvisioningOutcome::Deleted) => failed(Reason::NotFound, "does not exist any more"),
        PollState::Pending { poll_after, .. } => Err(busy(id, step).after(poll_after)),
    }
}

/// Returns the error of a load balancer that does not accept a change at present. It has a short retry delay.
pub(super) fn busy(id: &LoadBalancerId, step: StepName) -> DriverError {
    let detail = format!("the load balancer {id} is being changed");
    DriverError::new(Reason::Conflict, step).detail(detail).after(LoadBalancerPacing::MIN_INTERVAL)
}
