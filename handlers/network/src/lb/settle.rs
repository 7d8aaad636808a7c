//! Takes the steps of a plan: the thin shell between [`plan`] and the drivers.

use std::sync::Arc;

use staffetta_driver::{
    Allocation, DriverError, Listener, ListenerPort, LoadBalancer, LoadBalancerDriver, LoadBalancerSpec,
    Owner, PortId, PublicIp, PublicIpRequest, Reason, ServicePublicIpDriver,
};

use super::claims::{Claim, Claims};
use super::error::LbError;
use super::plan::{Step, plan, serves};
use super::standing::Standing;
use super::wanted::{PublicAddress, Wanted};

/// A plan leads to what is wanted in one round, or in two when a predecessor's things are adopted; another round may
/// follow a look at the marks. What takes longer than this never ends.
const ROUNDS: u32 = 5;

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
    pub(super) unserved: Vec<(ListenerPort, DriverError)>,
}

impl Settling<'_> {
    /// Takes steps until what stands is what is wanted.
    ///
    /// A driver that refuses a step may know better what stands: somebody removed it, or it is broken. Then the marks are
    /// read, once, and if they tell another story, the plan is made anew.
    pub(super) async fn settle(&mut self) -> Result<(), LbError> {
        let mut looked = false;
        for _ in 0..ROUNDS {
            let steps = plan(self.wanted.as_ref(), &self.standing);
            if steps.is_empty() {
                return Ok(());
            }
            let Err((step, error)) = self.take(steps).await else { continue };
            let failed = |error| {
                if step.is_public() { LbError::PublicIp(error) } else { LbError::LoadBalancer(error) }
            };
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
        let mut addresses = public_ip.public_ips(Some(self.owner)).await.map_err(LbError::Marks)?.into_iter();
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
        Ok(standing.completed_by(self.annotated.clone()))
    }

    /// No mark tells whether this address, which the user made, leads to the load balancer. Where it is wanted, acquiring it
    /// tells; where it is not, it is taken to lead there, so that it is disassociated.
    pub(super) fn disown(&mut self, users: Option<PublicIp>) {
        let wanted = self.wanted.as_ref().and_then(|wanted| wanted.public_ip);
        if let Some(users) = users.filter(|users| !wanted.is_some_and(|wanted| serves(users, wanted)))
            && self.standing.public_ip.is_none()
        {
            self.standing.public_ip = Some(users);
            self.lead_to(self.port().map(|(_, port)| port));
        }
    }

    /// Takes the steps one by one, and stops at the first that fails.
    async fn take(&mut self, steps: Vec<Step>) -> Result<(), (Step, DriverError)> {
        for step in steps {
            let public_ip = self.standing.public_ip.clone();
            let users = public_ip.filter(|public_ip| public_ip.allocation == Allocation::User);
            self.claims.set(&self.owner.uid, Claim::Asked(users));
            match self.step(&step).await {
                Ok(()) => self.know(),
                Err(error) if error.ambiguous() => return Err((step, error)),
                Err(error) => {
                    self.know();
                    match step {
                        Step::EnsureListener(at) if error.reason() == Reason::Unsupported => {
                            self.do_without(at, error);
                        }
                        _ => return Err((step, error)),
                    }
                }
            }
        }
        Ok(())
    }

    fn know(&self) {
        self.claims.set(&self.owner.uid, Claim::Known(self.standing.clone()));
    }

    /// The other side has no such protocol: the service works on its other ports.
    fn do_without(&mut self, at: ListenerPort, error: DriverError) {
        if let Some(wanted) = &mut self.wanted {
            wanted.listeners.remove(&at);
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

    async fn step(&mut self, step: &Step) -> Result<(), DriverError> {
        match step {
            Step::DisassociatePublicIp => self.disassociate().await,
            Step::ReleasePublicIp => {
                if let Some(public_ip) = &self.standing.public_ip {
                    self.drivers.public_ip.release(self.owner, public_ip).await?;
                }
                self.standing.public_ip = None;
                Ok(())
            }
            Step::ReleaseLoadBalancer => {
                if let Some(load_balancer) = &self.standing.load_balancer {
                    self.drivers.load_balancer.release_load_balancer(self.owner, &load_balancer.id).await?;
                }
                self.standing.load_balancer = None;
                Ok(())
            }
            Step::EnsureLoadBalancer { adopt } => {
                if let Some(wanted) = &self.wanted {
                    let spec = LoadBalancerSpec { adopt: adopt.clone(), ..wanted.load_balancer.clone() };
                    let made = self.drivers.load_balancer.ensure_load_balancer(self.owner, &spec).await?;
                    self.standing.load_balancer = Some(made);
                }
                let public_ip = self.standing.public_ip.as_ref();
                self.standing.unmarked &= public_ip.is_some_and(|found| found.allocation == Allocation::Pool);
                Ok(())
            }
            Step::EnsureListener(at) => self.ensure_listener(*at).await,
            Step::ReleaseListener(at) => {
                if let Some((load_balancer, listener)) = self.listener(*at) {
                    self.drivers.load_balancer.release_listener(load_balancer, listener).await?;
                }
                if let Some(load_balancer) = &mut self.standing.load_balancer {
                    load_balancer.listeners.retain(|listener| listener.at != *at);
                }
                Ok(())
            }
            Step::SetMembers(at, wanted) => {
                let Some((load_balancer, listener)) = self.listener(*at) else { return Ok(()) };
                let Some(pool) = &listener.pool else { return Ok(()) };
                let members = self.drivers.load_balancer.set_members(load_balancer, &pool.id, wanted).await?;
                let load_balancer = self.standing.load_balancer.as_mut();
                let mut listeners = load_balancer.into_iter().flat_map(|found| &mut found.listeners);
                if let Some(pool) =
                    listeners.find(|listener| listener.at == *at).and_then(|found| found.pool.as_mut())
                {
                    pool.members = members;
                }
                Ok(())
            }
            Step::AcquirePublicIp { address, adopt } => {
                let Some((load_balancer, port)) = self.port() else { return Ok(()) };
                let request = PublicIpRequest {
                    project: load_balancer.project.clone(),
                    named: match address {
                        PublicAddress::Named(ip) => Some(*ip),
                        PublicAddress::Any => None,
                    },
                    port,
                    adopt: adopt.clone(),
                };
                self.standing.public_ip = Some(self.drivers.public_ip.acquire(self.owner, &request).await?);
                self.standing.unmarked = false;
                Ok(())
            }
            Step::AssociatePublicIp => {
                let Some((_, port)) = self.port() else { return Ok(()) };
                let Some(public_ip) = &self.standing.public_ip else { return Ok(()) };
                self.drivers.public_ip.associate(public_ip, &port).await?;
                self.lead_to(Some(port));
                Ok(())
            }
        }
    }

    async fn disassociate(&mut self) -> Result<(), DriverError> {
        if let Some(public_ip) = &self.standing.public_ip
            && let Some(port) = &public_ip.port
        {
            self.drivers.public_ip.disassociate(public_ip, port).await?;
        }
        self.lead_to(None);
        Ok(())
    }

    async fn ensure_listener(&mut self, at: ListenerPort) -> Result<(), DriverError> {
        let Some(load_balancer) = &mut self.standing.load_balancer else { return Ok(()) };
        let listener = self.drivers.load_balancer.ensure_listener(load_balancer, at).await?;
        load_balancer.listeners.retain(|present| present.at != at);
        load_balancer.listeners.push(listener);
        Ok(())
    }

    fn listener(&self, at: ListenerPort) -> Option<(&LoadBalancer, &Listener)> {
        let load_balancer = self.standing.load_balancer.as_ref()?;
        Some((load_balancer, load_balancer.listener(at)?))
    }

    fn port(&self) -> Option<(&LoadBalancer, PortId)> {
        let load_balancer = self.standing.load_balancer.as_ref()?;
        Some((load_balancer, load_balancer.port.clone()))
    }

    fn lead_to(&mut self, port: Option<PortId>) {
        if let Some(public_ip) = &mut self.standing.public_ip {
            *public_ip = PublicIp { port, ..public_ip.clone() };
        }
    }
}
