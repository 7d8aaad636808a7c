//! Takes the steps of a plan: the thin shell between [`plan`] and the drivers.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{
    Allocation, DriverError, ListenerPort, LoadBalancerDriver, Marked, Owner, Progress, Provisioning,
    PublicIp, Reason, ServicePublicIpDriver,
};

use super::claims::{Claim, Claims, unmarked};
use super::error::LbError;
use super::plan::{Step, plan, serves};
use super::standing::Standing;
use super::wanted::Wanted;

/// A plan leads to what is wanted in one round, or in two when a predecessor's things are adopted; a driver that makes a
/// listener piece by piece takes one a piece, and another round may follow a look at the marks. What takes longer than this
/// never ends.
const ROUNDS: u32 = 8;

/// The drivers of the handler.
#[derive(Clone)]
pub struct LbDrivers {
    /// Who makes, changes, finds and releases load balancers.
    pub load_balancer: Arc<dyn LoadBalancerDriver>,
    /// Who acquires, associates and releases public addresses.
    pub public_ip: Arc<dyn ServicePublicIpDriver>,
}

/// One service on its way from what stands to what is wanted.
///
/// Before each call it is entered into the claims that a driver was asked, and after each answer what stands by then: so
/// whoever goes on after an interruption knows where, or knows that the marks must be read.
pub(super) struct Settling<'a> {
    pub(super) drivers: &'a LbDrivers,
    pub(super) claims: &'a Claims,
    pub(super) owner: &'a Owner,
    /// None for a service that is to have nothing.
    pub(super) wanted: Option<Wanted>,
    /// What the annotation shows.
    pub(super) annotated: Standing,
    pub(super) standing: Standing,
    /// The ports that the other side cannot serve, and what it said.
    unserved: Vec<(ListenerPort, DriverError)>,
    /// Whether the load balancer that stands was seen to work.
    pub(super) works: bool,
    /// Whether there is no step left, so that time alone is awaited.
    pub(super) accepted: bool,
    /// Whether a load balancer was found broken, and is made anew.
    pub(super) broke: bool,
}

/// Why the steps of a plan were not all taken.
enum Halt {
    /// The load balancer takes no change yet.
    Pending(Duration, Option<DriverError>),
    /// It broke: what is to be done is another matter now.
    Broken,
    /// A driver refused.
    Failed(Step, DriverError),
}

impl<'a> Settling<'a> {
    /// On the way from `standing`, unless it [begins](Self::begin_at) elsewhere.
    pub(super) fn new(
        (drivers, claims): (&'a LbDrivers, &'a Claims),
        owner: &'a Owner,
        wanted: Option<Wanted>,
        annotated: Standing,
        standing: Standing,
    ) -> Self {
        let works = standing.status() == Some(Provisioning::Active);
        let unserved = Vec::new();
        Self {
            drivers,
            claims,
            owner,
            wanted,
            annotated,
            standing,
            unserved,
            works,
            accepted: false,
            broke: false,
        }
    }

    /// This stands.
    pub(super) fn begin_at(&mut self, standing: Standing) {
        self.works = standing.status() == Some(Provisioning::Active);
        self.standing = standing;
    }

    /// Takes steps until what stands is what is wanted, and the load balancer works.
    ///
    /// A driver that refuses a step may know better what stands: somebody removed it, or it is broken. Then the marks are
    /// read, once, and if they tell another story, the plan is made anew. A load balancer that breaks is made anew at once the
    /// first time, and when the next attempt comes after that.
    pub(super) async fn settle(&mut self) -> Result<(), LbError> {
        let mut looked = false;
        for _ in 0..ROUNDS {
            self.broke |= self.wanted.is_some() && self.standing.is_broken();
            let steps = plan(self.wanted.as_ref(), &self.standing);
            self.accepted = steps.is_empty();
            let halt = match self.take(steps).await {
                Ok(()) if self.accepted => return Ok(()),
                Ok(()) => continue,
                Err(halt) => halt,
            };
            let (step, error) = match halt {
                Halt::Pending(after, error) => {
                    return Err(LbError::Pending { after, source: error.map(Box::new) });
                }
                Halt::Broken => {
                    self.breaks()?;
                    continue;
                }
                Halt::Failed(step, error) => (step, error),
            };
            let failed = |error| {
                if step.changes_load_balancer() {
                    LbError::LoadBalancer(error)
                } else {
                    LbError::PublicIp(error)
                }
            };
            // What is wrong with the address is no reason not to see that the load balancer breaks.
            if !step.changes_load_balancer()
                && !error.ambiguous()
                && matches!(self.ready(None).await, Err(Halt::Broken))
            {
                self.breaks()?;
                continue;
            }
            if error.transient() || error.ambiguous() || looked {
                return Err(failed(error));
            }
            looked = true;
            let seen = self.look().await?;
            let believed = std::mem::replace(&mut self.standing, seen);
            self.know();
            if self.standing.is_as(&believed) {
                return Err(failed(error));
            }
        }
        let step = plan(self.wanted.as_ref(), &self.standing).into_iter().next();
        step.map_or(Ok(()), |step| Err(LbError::Unsettled { rounds: ROUNDS, step: format!("{step:?}") }))
    }

    /// What the marks tell, completed by what bears none. Of several load balancers or addresses, which only a lost answer
    /// can have made, all but the first are released.
    pub(super) async fn look(&self) -> Result<Standing, LbError> {
        let LbDrivers { load_balancer, public_ip } = self.drivers;
        let mut balancers =
            load_balancer.load_balancers(Some(self.owner)).await.map_err(LbError::Marks)?.into_iter();
        // Of an address that the user made, only a list of all tells.
        let of = Some(self.owner).filter(|_| !self.annotated.has_users());
        let addresses = public_ip.public_ips(of).await.map_err(LbError::Marks)?;
        let annotated = self.annotated.clone().seen_with(&unmarked(&addresses));
        let mine = |marked: &Marked<PublicIp>| {
            marked.owner.as_ref().is_some_and(|marked| marked.uid == self.owner.uid)
        };
        let mut addresses = addresses.into_iter().filter(mine);
        let standing = Standing {
            load_balancer: balancers.next().map(|marked| marked.thing),
            public_ip: addresses.next().map(|marked| marked.thing),
            unmarked: false,
        };
        for surplus in balancers {
            let released = load_balancer.release_load_balancer(self.owner, &surplus.thing.id).await;
            released.map_err(LbError::LoadBalancer)?;
        }
        for surplus in addresses {
            public_ip.release(self.owner, &surplus.thing).await.map_err(LbError::PublicIp)?;
        }
        Ok(standing.completed_by(annotated))
    }

    /// No mark tells whether this address, which the user made, leads to the load balancer. Where it is wanted, acquiring it
    /// tells; where it is not, it is taken to lead there, so that it is disassociated.
    pub(super) fn disown(&mut self, users: Option<PublicIp>) {
        let wanted = self.wanted.as_ref().and_then(|wanted| wanted.public_ip);
        if let Some(users) = users.filter(|users| !wanted.is_some_and(|wanted| serves(users, wanted)))
            && self.standing.public_ip.is_none()
        {
            self.standing.public_ip = Some(users);
            let port = self.standing.load_balancer.as_ref().map(|found| found.port.clone());
            self.standing.lead_to(port);
        }
    }

    /// Takes the steps one by one, and stops at the first that fails; but what is wrong with one listener keeps no other from
    /// being made. When there is no step, the load balancer is awaited.
    async fn take(&mut self, steps: Vec<Step>) -> Result<(), Halt> {
        if steps.is_empty() {
            return self.ready(None).await;
        }
        let mut refused = None;
        for step in steps {
            if refused.is_some() && !matches!(step, Step::EnsureListener(_)) {
                break;
            }
            if step.changes_load_balancer() {
                self.ready(Some(&step)).await?;
            }
            let public_ip = self.standing.public_ip.clone();
            let users = public_ip.filter(|public_ip| public_ip.allocation == Allocation::User);
            self.claims.set(&self.owner.uid, Claim::Asked(users));
            let taken = self.step(&step).await;
            if !taken.as_ref().is_err_and(DriverError::ambiguous) {
                self.know();
            }
            match (taken, &step) {
                (Ok(()), _) => {}
                (Err(error), Step::EnsureListener(spec)) if error.reason() == Reason::Unsupported => {
                    self.do_without(spec.at, error);
                }
                // The other listeners have nothing to do with it.
                (Err(error), Step::EnsureListener(_)) if is_of_one(&error) => {
                    refused = refused.or(Some(Halt::Failed(step.clone(), error)));
                }
                (Err(error), step) => return Err(self.halted(step, error)),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Why a step was refused: a load balancer that is busy is no failure.
    fn halted(&mut self, step: &Step, error: DriverError) -> Halt {
        let busy = error.reason() == Reason::Conflict && !error.ambiguous() && step.changes_load_balancer();
        match error.retry_after().filter(|_| busy) {
            Some(after) => {
                self.standing.becomes(Provisioning::Pending);
                self.know();
                Halt::Pending(after, Some(error))
            }
            None => Halt::Failed(step.clone(), error),
        }
    }

    /// Goes on only when the load balancer takes changes, or is not there; for `step`, if there is one to be taken.
    async fn ready(&mut self, step: Option<&Step>) -> Result<(), Halt> {
        let Some(load_balancer) = &self.standing.load_balancer else { return Ok(()) };
        if load_balancer.status != Provisioning::Pending {
            return Ok(());
        }
        let progress = self.drivers.load_balancer.progress(load_balancer).await;
        match progress {
            Ok(Progress::Active) => {
                self.standing.becomes(Provisioning::Active);
                self.works = true;
                self.claims.mends(&self.owner.uid);
                self.know();
                Ok(())
            }
            Ok(Progress::Pending { ask_again }) => Err(Halt::Pending(ask_again, None)),
            Ok(Progress::Error) => {
                self.standing.becomes(Provisioning::Error);
                self.know();
                Err(Halt::Broken)
            }
            Err(error) => {
                let step = step.cloned().unwrap_or(Step::EnsureLoadBalancer { adopt: None });
                Err(Halt::Failed(step, error))
            }
        }
    }

    /// The load balancer broke. One that is wanted is made anew, but not again and again.
    fn breaks(&mut self) -> Result<(), LbError> {
        if self.wanted.is_none() {
            return Ok(());
        }
        match self.claims.breaks(&self.owner.uid) {
            1 => Ok(()),
            times => Err(LbError::Broken { times }),
        }
    }

    fn know(&self) {
        self.claims.set(&self.owner.uid, Claim::Known(self.standing.clone()));
    }

    /// The other side has no such protocol: the service works on its other ports.
    fn do_without(&mut self, at: ListenerPort, error: DriverError) {
        if let Some(wanted) = &mut self.wanted {
            wanted.load_balancer.listeners.retain(|listener| listener.at != at);
        }
        self.unserved.push((at, error));
    }

    /// Fails with the ports that the service wants and does not get.
    pub(super) fn served(self) -> Result<(), LbError> {
        let (listeners, mut sources): (Vec<_>, Vec<_>) = self.unserved.into_iter().unzip();
        if sources.is_empty() {
            return Ok(());
        }
        Err(LbError::Unserved { listeners, source: Box::new(sources.swap_remove(0)) })
    }
}

/// Whether an error is about the thing that was asked for, and not about who was asked or when.
fn is_of_one(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Refused | Reason::Quota) && !error.ambiguous()
}
