//! Calls drivers until the observed state of a load balancer is the desired one.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{
    DriverError, ListenerChange, ListenerPort, ListenerSpec, LoadBalancerDriver, LoadBalancerProgress, Owner,
    ProvisioningStatus, PublicIp, Reason, ServicePublicIpDriver,
};

use super::desired::DesiredState;
use super::error::LbError;
use super::plan::{LbStep, plan};
use super::records::{LbRecord, LbRecords, Marks};
use super::state::LbaasState;
use crate::lbaasspec::LbaasSpecDrivers;
use crate::step_error::StepContext;

/// The maximum number of plans in one reconciliation. Usually one plan is enough. An adoption needs
/// two. A driver that creates a listener in parts needs one plan for each part. Reading the
/// ownership marks needs one more.
const MAX_ROUNDS: u32 = 8;

/// The name of the step of a driver call for the load balancer, for error messages.
pub(super) const LOAD_BALANCER_STEP: &str = "update the load balancer";

/// The name of the step of a driver call for the public address, for error messages.
const PUBLIC_IP_STEP: &str = "update the public address";

/// The drivers that the handler `lb` calls.
#[derive(Clone)]
pub struct LbDrivers {
    /// The driver that creates, changes, lists and releases load balancers.
    pub load_balancer: Arc<dyn LoadBalancerDriver>,
    /// The driver that acquires, associates and releases public addresses.
    pub public_ip: Arc<dyn ServicePublicIpDriver>,
    /// The drivers that choose the project, the subnet and the security groups of a load balancer.
    pub placement: LbaasSpecDrivers,
}

impl LbDrivers {
    /// Lists the load balancers with the ownership mark (tag or label) of `owner`, and the public
    /// addresses with that of `ip_owner`. `None` lists those of all services; the public addresses
    /// then include those without an ownership mark.
    pub(super) async fn marks(
        &self,
        owner: Option<&Owner>,
        ip_owner: Option<&Owner>,
    ) -> Result<Marks, LbError> {
        const STEP: &str = "list the existing resources of the service";
        let load_balancers = self.load_balancer.load_balancers(owner).await.step(STEP)?;
        let public_ips = self.public_ip.public_ips(ip_owner).await.step(STEP)?;
        Ok(Marks { load_balancers, public_ips })
    }
}

/// The reconciliation of one service's load balancer.
///
/// Before each step, the in-memory record is set to [`LbRecord::Unknown`]. When the outcome of the step is known, the record is
/// set to the new state. If the reconciliation is interrupted, the next one continues from the recorded state, or reads the
/// ownership marks if the record is `Unknown`.
pub(super) struct Reconciliation<'a> {
    /// The drivers of load balancers and of public addresses.
    pub(super) drivers: &'a LbDrivers,
    /// The in-memory records of the load balancers of all services.
    pub(super) records: &'a LbRecords,
    /// The service that owns the load balancer.
    pub(super) owner: &'a Owner,
    /// The desired load balancer and public address; `None` for a service that is to have no load balancer.
    pub(super) desired: Option<DesiredState>,
    /// The load balancer and public address that the annotation of the service names.
    pub(super) annotated: LbaasState,
    /// The observed state of the load balancer and the public address.
    pub(super) state: LbaasState,
    /// The ports whose protocol the driver does not support, each with the error of the driver.
    pub(super) unserved: Vec<(ListenerPort, DriverError)>,
    /// `true` once the current load balancer was observed or recorded as active.
    pub(super) was_active: bool,
    /// `true` if the last plan had no steps, so that the observed state is the desired one.
    pub(super) is_complete: bool,
    /// `true` if the load balancer was found in the state ERROR, so that it is replaced.
    pub(super) is_replaced: bool,
}

/// The reason that a plan was interrupted before its last step.
enum Interruption {
    /// The load balancer is processing a change. The values are the delay before the next attempt,
    /// and the error of the driver if it refused a call for that reason.
    Pending(Duration, Option<DriverError>),
    /// The load balancer is in the state ERROR, so that another plan is needed.
    Broken,
    /// A driver call of a step failed.
    Failed {
        /// `true` if the call concerned the load balancer, `false` if it concerned the public address.
        of_load_balancer: bool,
        /// The error of the driver.
        error: DriverError,
    },
}

impl Reconciliation<'_> {
    /// Notes that the current load balancer was observed as active, or is recorded as active in memory or in
    /// the annotation, and resets its count of failures.
    pub(super) fn note_active(&mut self) {
        self.was_active = true;
        self.records.clear_failures(&self.owner.uid);
    }

    /// Executes plans until the observed state is the desired one and the load balancer is active.
    ///
    /// If a driver permanently refuses a step, the assumed state may be wrong. In this case the
    /// ownership marks are read, at most once, and a new plan is made if they show another state. A
    /// load balancer in the state ERROR is replaced at once the first time. After a repeated
    /// failure, an error is returned, and the next attempt replaces the load balancer.
    pub(super) async fn run(&mut self) -> Result<(), LbError> {
        let (mut marks_read, mut rounds) = (false, 0);
        loop {
            self.is_replaced |= self.desired.is_some() && self.state.is_broken();
            let steps = plan(self.desired.as_ref(), &self.state);
            self.is_complete = steps.is_empty();
            if let Some(step) = steps.first().filter(|_| rounds >= MAX_ROUNDS) {
                return Err(LbError::Inconsistent { rounds, step: format!("{step:?}") });
            }
            rounds += 1;
            match self.execute_all(steps).await {
                Ok(()) if self.is_complete => return Ok(()),
                Ok(()) => {}
                Err(Interruption::Pending(after, source)) => {
                    return Err(LbError::Pending { after, source: source.map(Box::new) });
                }
                Err(Interruption::Broken) => self.count_failure()?,
                Err(Interruption::Failed { of_load_balancer, error }) => {
                    // A failed call for the address must not hide that the load balancer is broken.
                    if !of_load_balancer
                        && !error.ambiguous()
                        && matches!(self.check_active().await, Err(Interruption::Broken))
                    {
                        self.count_failure()?;
                        continue;
                    }
                    if error.transient() || error.ambiguous() || marks_read {
                        return failed(of_load_balancer, error);
                    }
                    marks_read = true;
                    let marked = self.read_marks(None).await?;
                    let assumed = std::mem::replace(&mut self.state, marked);
                    self.record_state();
                    if self.state.is_equivalent(&assumed) {
                        return failed(of_load_balancer, error);
                    }
                }
            }
        }
    }

    /// Reads the state from the ownership marks, and adds the resources without an ownership mark
    /// that the annotation names, or `public_ip` in place of the annotation's address. Surplus load
    /// balancers and public addresses are released; they exist if the response to a creation was
    /// lost.
    pub(super) async fn read_marks(&self, public_ip: Option<PublicIp>) -> Result<LbaasState, LbError> {
        let mut annotated = self.annotated.clone();
        annotated.public_ip = public_ip.or(annotated.public_ip);
        // A user-provided address is found only in the list of all addresses.
        let ip_owner = Some(self.owner).filter(|_| !annotated.has_user_ip());
        let marks = self.drivers.marks(Some(self.owner), ip_owner).await?;
        let unmarked_ips = marks.unmarked_ips();
        let mut load_balancers = marks.load_balancers.into_iter();
        let mut public_ips = marks
            .public_ips
            .into_iter()
            .filter(|marked| marked.owner.as_ref().is_some_and(|owner| owner.uid == self.owner.uid));
        let mut state = LbaasState {
            load_balancer: load_balancers.next().map(|marked| marked.resource),
            public_ip: public_ips.next().map(|marked| marked.resource),
            unmarked: false,
        };
        state.add_user_ip(&unmarked_ips);
        for surplus in load_balancers {
            let driver = &self.drivers.load_balancer;
            let released = driver.release_load_balancer(self.owner, &surplus.resource.id).await;
            released.step(LOAD_BALANCER_STEP)?;
        }
        for surplus in public_ips {
            let released = self.drivers.public_ip.release(self.owner, &surplus.resource).await;
            released.step(PUBLIC_IP_STEP).map_err(LbError::PublicIp)?;
        }
        Ok(state.merge_annotated(annotated))
    }

    /// Executes the steps up to the first failure. If the driver refuses one listener, the other listeners
    /// are still created or changed. If a pool cannot be changed or a listener released, a public address is
    /// still released. Without steps, asks once if a pending load balancer is active now.
    async fn execute_all(&mut self, steps: Vec<LbStep>) -> Result<(), Interruption> {
        if steps.is_empty() {
            return self.check_active().await;
        }
        let (mut interrupted, mut refused, mut is_unknown) = (None, None, false);
        for step in steps {
            if interrupted.is_some() && !step.releases_public_ip() {
                continue;
            }
            if refused.is_some() && !matches!(step, LbStep::ChangeListener(ListenerChange::Ensure(_))) {
                break;
            }
            if step.changes_load_balancer()
                && let Err(interruption) = self.check_active().await
            {
                interrupted = Some(interruption);
                continue;
            }
            self.records.set(&self.owner.uid, LbRecord::Unknown(self.state.public_ip.clone()));
            let executed = self.execute(&step).await;
            is_unknown |= executed.as_ref().is_err_and(DriverError::ambiguous);
            if !is_unknown {
                self.record_state();
            }
            let Err(error) = executed else { continue };
            match &step {
                LbStep::ChangeListener(ListenerChange::Ensure(ListenerSpec { at, .. }))
                    if error.reason() == Reason::Unsupported =>
                {
                    self.skip_listener(*at, error);
                }
                LbStep::ChangeListener(ListenerChange::Ensure(_)) if is_specific(&error) => {
                    refused = refused.or(Some(Interruption::Failed { of_load_balancer: true, error }));
                }
                LbStep::ChangeListener(_) => interrupted = Some(self.interrupted(&step, error)),
                _ => return Err(self.interrupted(&step, error)),
            }
        }
        interrupted.or(refused).map_or(Ok(()), Err)
    }

    /// Classifies the error of a failed step. If the driver certainly refused the change because the load balancer is busy, and names a
    /// retry delay, the load balancer counts as pending; any other error is a failure.
    fn interrupted(&mut self, step: &LbStep, error: DriverError) -> Interruption {
        let of_load_balancer = step.changes_load_balancer();
        let busy = error.reason() == Reason::Conflict && !error.ambiguous() && of_load_balancer;
        match error.retry_after().filter(|_| busy) {
            Some(after) => {
                self.set_status(ProvisioningStatus::Pending);
                Interruption::Pending(after, Some(error))
            }
            None => Interruption::Failed { of_load_balancer, error },
        }
    }

    /// Asks the driver once if a pending load balancer is active now. Succeeds without a call if the load balancer is not pending or does
    /// not exist. Returns an error if it is still pending or in the state ERROR, or if the call fails.
    async fn check_active(&mut self) -> Result<(), Interruption> {
        let Some(load_balancer) = &self.state.load_balancer else { return Ok(()) };
        if load_balancer.status != ProvisioningStatus::Pending {
            return Ok(());
        }
        match self.drivers.load_balancer.progress(load_balancer).await {
            Ok(LoadBalancerProgress::Active) => {
                self.set_status(ProvisioningStatus::Active);
                self.note_active();
                Ok(())
            }
            Ok(LoadBalancerProgress::Pending { poll_after }) => Err(Interruption::Pending(poll_after, None)),
            Ok(LoadBalancerProgress::Error) => {
                self.set_status(ProvisioningStatus::Error);
                Err(Interruption::Broken)
            }
            Err(error) => Err(Interruption::Failed { of_load_balancer: true, error }),
        }
    }

    /// Counts a failure of the load balancer (state ERROR). Returns an error for the second and
    /// each further consecutive failure, so that the load balancer is then replaced by another
    /// attempt, not at once. Does nothing if no load balancer is desired.
    fn count_failure(&mut self) -> Result<(), LbError> {
        if self.desired.is_none() {
            return Ok(());
        }
        match self.records.add_failure(&self.owner.uid) {
            1 => Ok(()),
            times => Err(LbError::Broken { times }),
        }
    }

    /// Sets the status of the load balancer in the observed state, and stores that state in the
    /// in-memory record.
    fn set_status(&mut self, status: ProvisioningStatus) {
        self.state.set_status(status);
        self.record_state();
    }

    /// Stores the observed state as the service's in-memory record ([`LbRecord::Known`]).
    fn record_state(&self) {
        self.records.set(&self.owner.uid, LbRecord::Known(self.state.clone()));
    }

    /// Removes a listener whose protocol the driver does not support from the desired state, and
    /// stores the error.
    fn skip_listener(&mut self, at: ListenerPort, error: DriverError) {
        if let Some(desired) = &mut self.desired {
            desired.load_balancer.listeners.retain(|listener| listener.at != at);
        }
        self.unserved.push((at, error));
    }

    /// Returns an error if listeners were left out because the driver does not support their
    /// protocol.
    pub(super) fn check_unserved(self) -> Result<(), LbError> {
        let (listeners, mut sources): (Vec<_>, Vec<_>) = self.unserved.into_iter().unzip();
        if sources.is_empty() {
            return Ok(());
        }
        Err(LbError::Unserved { listeners, source: Box::new(sources.swap_remove(0)) })
    }
}

/// Returns the [`LbError`] for a failed driver call, which concerned the load balancer or else the public address.
fn failed(of_load_balancer: bool, error: DriverError) -> Result<(), LbError> {
    if of_load_balancer {
        Ok(Err(error).step(LOAD_BALANCER_STEP)?)
    } else {
        Err(error).step(PUBLIC_IP_STEP).map_err(LbError::PublicIp)
    }
}

/// Returns `true` if the error concerns only the requested resource: the driver refused it, or a
/// quota is used up.
fn is_specific(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Refused | Reason::Quota) && !error.ambiguous()
}
