//! One step of a plan: the call of a driver, and what stands after it.

use staffetta_driver::{
    Allocation, DriverError, Listener, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerId,
    LoadBalancerSpec, MemberSpec, PortId, Provisioning, PublicIpId, PublicIpRequest,
};

use super::plan::Step;
use super::settle::Settling;
use super::wanted::PublicAddress;

impl Settling<'_> {
    /// Takes one step. After a change, the load balancer is taken to be busy until its driver says otherwise.
    pub(super) async fn step(&mut self, step: &Step) -> Result<(), DriverError> {
        match step {
            Step::DisassociatePublicIp => self.disassociate().await,
            Step::ReleasePublicIp => self.release_public_ip().await,
            Step::ReleaseLoadBalancer => self.release_load_balancer().await,
            Step::EnsureLoadBalancer { adopt } => self.ensure_load_balancer(adopt.as_ref()).await,
            Step::EnsureListener(spec) => self.ensure_listener(spec).await,
            Step::ReleaseListener(at) => self.release_listener(*at).await,
            Step::SetMembers(at, wanted) => self.set_members(*at, wanted).await,
            Step::AcquirePublicIp { address, adopt } => self.acquire(*address, adopt.as_ref()).await,
            Step::AssociatePublicIp => self.associate().await,
        }
    }

    async fn release_load_balancer(&mut self) -> Result<(), DriverError> {
        if let Some(load_balancer) = &self.standing.load_balancer {
            self.drivers.load_balancer.release_load_balancer(self.owner, &load_balancer.id).await?;
        }
        self.standing.load_balancer = None;
        self.works = false;
        Ok(())
    }

    async fn ensure_load_balancer(&mut self, adopt: Option<&LoadBalancerId>) -> Result<(), DriverError> {
        if let Some(wanted) = &self.wanted {
            let spec = LoadBalancerSpec { adopt: adopt.cloned(), ..wanted.load_balancer.clone() };
            let made = self.drivers.load_balancer.ensure_load_balancer(self.owner, &spec).await?;
            self.works |= made.status == Provisioning::Active;
            self.standing.load_balancer = Some(made);
            if self.standing.unmarked {
                self.standing.disown_elsewhere();
            }
        }
        let public_ip = self.standing.public_ip.as_ref();
        self.standing.unmarked &= public_ip.is_some_and(|found| found.allocation == Allocation::Pool);
        Ok(())
    }

    async fn ensure_listener(&mut self, spec: &ListenerSpec) -> Result<(), DriverError> {
        let Some(load_balancer) = &mut self.standing.load_balancer else { return Ok(()) };
        let listener = self.drivers.load_balancer.ensure_listener(load_balancer, spec).await?;
        load_balancer.listeners.retain(|present| present.at != spec.at);
        load_balancer.listeners.push(listener);
        load_balancer.status = Provisioning::Pending;
        Ok(())
    }

    async fn release_listener(&mut self, at: ListenerPort) -> Result<(), DriverError> {
        let left = match self.listener(at) {
            Some((load_balancer, listener)) => {
                self.drivers.load_balancer.release_listener(load_balancer, listener).await?
            }
            None => None,
        };
        if let Some(load_balancer) = &mut self.standing.load_balancer {
            load_balancer.listeners.retain(|listener| listener.at != at);
            load_balancer.listeners.extend(left);
            load_balancer.status = Provisioning::Pending;
        }
        Ok(())
    }

    async fn set_members(&mut self, at: ListenerPort, wanted: &[MemberSpec]) -> Result<(), DriverError> {
        let Some((load_balancer, listener)) = self.listener(at) else { return Ok(()) };
        let Some(pool) = &listener.pool else { return Ok(()) };
        let members = self.drivers.load_balancer.set_members(load_balancer, &pool.id, wanted).await?;
        self.standing.becomes(Provisioning::Pending);
        let load_balancer = self.standing.load_balancer.as_mut();
        let mut listeners = load_balancer.into_iter().flat_map(|found| &mut found.listeners);
        if let Some(pool) = listeners.find(|listener| listener.at == at).and_then(|found| found.pool.as_mut())
        {
            pool.members = members;
        }
        Ok(())
    }

    async fn acquire(
        &mut self,
        address: PublicAddress,
        adopt: Option<&PublicIpId>,
    ) -> Result<(), DriverError> {
        let Some((load_balancer, port)) = self.port() else { return Ok(()) };
        let request = PublicIpRequest {
            project: load_balancer.project.clone(),
            named: match address {
                PublicAddress::Named(ip) => Some(ip),
                PublicAddress::Any => None,
            },
            port,
            adopt: adopt.cloned(),
        };
        self.standing.public_ip = Some(self.drivers.public_ip.acquire(self.owner, &request).await?);
        self.standing.unmarked = false;
        Ok(())
    }

    async fn associate(&mut self) -> Result<(), DriverError> {
        let Some((_, port)) = self.port() else { return Ok(()) };
        let Some(public_ip) = &self.standing.public_ip else { return Ok(()) };
        self.drivers.public_ip.associate(public_ip, &port).await?;
        self.standing.lead_to(Some(port));
        Ok(())
    }

    async fn disassociate(&mut self) -> Result<(), DriverError> {
        if let Some(public_ip) = &self.standing.public_ip
            && let Some(port) = &public_ip.port
        {
            self.drivers.public_ip.disassociate(public_ip, port).await?;
        }
        self.standing.lead_to(None);
        Ok(())
    }

    async fn release_public_ip(&mut self) -> Result<(), DriverError> {
        if let Some(public_ip) = &self.standing.public_ip {
            self.drivers.public_ip.release(self.owner, public_ip).await?;
        }
        self.standing.public_ip = None;
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
}
