//! The calls that concern services.

use std::sync::Arc;

use staffetta_driver::memory::{MemoryServiceProject, MemoryServiceSecurityGroups, MemoryServiceSubnets};
use staffetta_driver::{
    DriverError, Listener, LoadBalancer, LoadBalancerDriver, Marked, Member, Progress, ProjectId, PublicIp,
    SecurityGroupId, ServiceProjectDriver, ServicePublicIpDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, SubnetId,
};

use super::desk::{Answer, Desk, at_once, first};
use crate::wire::{
    AcquirePublicIp, AssociatePublicIp, DisassociatePublicIp, EnsureListener, EnsureLoadBalancer,
    LoadBalancerProgress, LoadBalancers, ProjectOfService, PublicIps, ReleaseListener, ReleaseLoadBalancer,
    ReleasePublicIp, SecurityGroupsOfService, SetMembers, SubnetsOfService,
};

impl Answer for ProjectOfService<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<ProjectId, DriverError> {
        at_once(MemoryServiceProject(Arc::clone(desk.services)).project(&self.service))
    }
}

impl Answer for SubnetsOfService<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<SubnetId>, DriverError> {
        at_once(MemoryServiceSubnets(Arc::clone(desk.services)).subnets(&self.service, &self.project))
    }
}

impl Answer for SecurityGroupsOfService<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<SecurityGroupId>, DriverError> {
        let driver = MemoryServiceSecurityGroups(Arc::clone(desk.services));
        at_once(driver.security_groups(&self.service, &self.project))
    }
}

impl Answer for LoadBalancers<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        at_once(desk.load_balancers().load_balancers((*self.owner).as_ref()))
    }
}

impl Answer for EnsureLoadBalancer<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<LoadBalancer, DriverError> {
        let look = |desk: &Desk<'_>| first(at_once(desk.load_balancers().load_balancers(Some(&self.owner))));
        desk.watched(look, |desk| {
            at_once(desk.load_balancers().ensure_load_balancer(&self.owner, &self.spec))
        })
    }
}

impl Answer for LoadBalancerProgress<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Progress, DriverError> {
        at_once(desk.load_balancers().progress(&self.load_balancer))
    }
}

impl Answer for ReleaseLoadBalancer<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<(), DriverError> {
        desk.watched(
            |desk| desk.services.load_balancer(&self.id),
            |desk| at_once(desk.load_balancers().release_load_balancer(&self.owner, &self.id)),
        )
    }
}

impl Answer for EnsureListener<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Listener, DriverError> {
        desk.watched(
            |desk| desk.services.load_balancer(&self.load_balancer.id),
            |desk| at_once(desk.load_balancers().ensure_listener(&self.load_balancer, &self.spec)),
        )
    }
}

impl Answer for ReleaseListener<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Option<Listener>, DriverError> {
        desk.watched(
            |desk| desk.services.load_balancer(&self.load_balancer.id),
            |desk| at_once(desk.load_balancers().release_listener(&self.load_balancer, &self.listener)),
        )
    }
}

impl Answer for SetMembers<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<Member>, DriverError> {
        desk.watched(
            |desk| desk.services.load_balancer(&self.load_balancer.id),
            |desk| {
                let drivers = desk.load_balancers();
                at_once(drivers.set_members(&self.load_balancer, &self.pool, &self.members))
            },
        )
    }
}

impl Answer for PublicIps<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<Marked<PublicIp>>, DriverError> {
        at_once(desk.public_ips().public_ips((*self.owner).as_ref()))
    }
}

impl Answer for AcquirePublicIp<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<PublicIp, DriverError> {
        let look = |desk: &Desk<'_>| first(at_once(desk.public_ips().public_ips(Some(&self.owner))));
        desk.watched(look, |desk| at_once(desk.public_ips().acquire(&self.owner, &self.request)))
    }
}

impl Answer for AssociatePublicIp<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<(), DriverError> {
        desk.watched(
            |desk| desk.services.public_ip(&self.public_ip.id),
            |desk| at_once(desk.public_ips().associate(&self.public_ip, &self.port)),
        )
    }
}

impl Answer for DisassociatePublicIp<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<(), DriverError> {
        desk.watched(
            |desk| desk.services.public_ip(&self.public_ip.id),
            |desk| at_once(desk.public_ips().disassociate(&self.public_ip, &self.port)),
        )
    }
}

impl Answer for ReleasePublicIp<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<(), DriverError> {
        desk.watched(
            |desk| desk.services.public_ip(&self.public_ip.id),
            |desk| at_once(desk.public_ips().release(&self.owner, &self.public_ip)),
        )
    }
}
