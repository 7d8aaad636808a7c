//! Executes one step of a plan: calls a driver, and updates the observed state by the result.

use staffetta_driver::{
    Allocation, DriverError, LoadBalancerId, LoadBalancerSpec, ProvisioningStatus, PublicIpId,
    PublicIpRequest,
};

use super::apply::Reconciliation;
use super::desired::PublicAddress;
use super::plan::LbStep;

impl Reconciliation<'_> {
    /// Calls the driver for one step, and updates the observed state if the call succeeds.
    pub(super) async fn execute(&mut self, step: &LbStep) -> Result<(), DriverError> {
        let public_ips = &self.drivers.public_ip;
        match step {
            LbStep::DisassociatePublicIp => {
                if let Some(public_ip) = &self.state.public_ip
                    && let Some(port) = &public_ip.port
                {
                    public_ips.disassociate(public_ip, port).await?;
                }
                self.state.associate(None);
            }
            LbStep::ReleasePublicIp => {
                if let Some(public_ip) = &self.state.public_ip {
                    public_ips.release(self.owner, public_ip).await?;
                }
                self.state.public_ip = None;
            }
            LbStep::ReleaseLoadBalancer => {
                if let Some(found) = &self.state.load_balancer {
                    self.drivers.load_balancer.release_load_balancer(self.owner, &found.id).await?;
                }
                self.state.load_balancer = None;
                self.was_active = false;
            }
            LbStep::EnsureLoadBalancer { adopt } => self.ensure_load_balancer(adopt.as_ref()).await?,
            LbStep::ChangeListener(change) => {
                if let Some(found) = &self.state.load_balancer {
                    let changed = self.drivers.load_balancer.change_listener(found, change).await?;
                    self.state.load_balancer = Some(changed);
                }
            }
            LbStep::AcquirePublicIp { address, adopt } => self.acquire(*address, adopt.as_ref()).await?,
            LbStep::AssociatePublicIp => {
                let port = self.state.load_balancer.as_ref().map(|found| found.port.clone());
                if let (Some(port), Some(public_ip)) = (port, &self.state.public_ip) {
                    public_ips.associate(public_ip, &port).await?;
                    self.state.associate(Some(port));
                }
            }
        }
        Ok(())
    }

    /// Creates, completes or adopts the load balancer, as the desired state describes it.
    async fn ensure_load_balancer(&mut self, adopt: Option<&LoadBalancerId>) -> Result<(), DriverError> {
        if let Some(desired) = &self.desired {
            let spec = LoadBalancerSpec { adopt: adopt.cloned(), ..desired.load_balancer.clone() };
            let made = self.drivers.load_balancer.ensure_load_balancer(self.owner, &spec).await?;
            self.was_active |= made.status == ProvisioningStatus::Active;
            self.state.load_balancer = Some(made);
            // Kuryr's annotation may name an address that does not belong to this service.
            if self.state.unmarked && self.state.has_user_ip() && self.state.reachable().is_none() {
                self.state.public_ip = None;
            }
        }
        let public_ip = self.state.public_ip.as_ref();
        self.state.unmarked &= public_ip.is_some_and(|found| found.allocation == Allocation::Pool);
        Ok(())
    }

    /// Acquires a public address for the port of the load balancer: takes one from the pool, finds the one that the user named, or
    /// adopts Kuryr's.
    async fn acquire(
        &mut self,
        address: PublicAddress,
        adopt: Option<&PublicIpId>,
    ) -> Result<(), DriverError> {
        let Some(load_balancer) = &self.state.load_balancer else { return Ok(()) };
        let request = PublicIpRequest {
            project: load_balancer.project.clone(),
            named: match address {
                PublicAddress::Named(ip) => Some(ip),
                PublicAddress::Any => None,
            },
            port: load_balancer.port.clone(),
            adopt: adopt.cloned(),
        };
        self.state.public_ip = Some(self.drivers.public_ip.acquire(self.owner, &request).await?);
        self.state.unmarked = false;
        Ok(())
    }
}
