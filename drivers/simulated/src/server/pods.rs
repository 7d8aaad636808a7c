//! The calls that concern pods.

use std::sync::Arc;

use staffetta_driver::memory::{MemoryPodProject, MemoryPodSecurityGroups, MemoryPodSubnets};
use staffetta_driver::{
    Activation, DriverError, Marked, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver,
    PodVifDriver, ProjectId, SecurityGroupId, Subnet, Vif,
};

use super::desk::{Answer, Desk, at_once};
use crate::ledger::Effect;
use crate::wire::{
    ActivateVif, ProjectOfPod, ReleaseVif, RequestVif, SecurityGroupsOfPod, SubnetsOfPod, Vifs,
};

impl Answer for ProjectOfPod<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<ProjectId, DriverError> {
        at_once(MemoryPodProject(Arc::clone(desk.network)).project(&self.pod))
    }
}

impl Answer for SubnetsOfPod<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<Subnet>, DriverError> {
        at_once(MemoryPodSubnets(Arc::clone(desk.network)).subnets(&self.pod, &self.project))
    }
}

impl Answer for SecurityGroupsOfPod<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<SecurityGroupId>, DriverError> {
        let driver = MemoryPodSecurityGroups(Arc::clone(desk.network));
        at_once(driver.security_groups(&self.pod, &self.project))
    }
}

impl Answer for RequestVif<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vif, DriverError> {
        let vif = at_once(desk.vifs().request_vif(&self.request))?;
        // Each request makes a port, or fails and makes none: there is nothing to look at before.
        let made = Marked { owner: Some(self.request.into_owned().owner), thing: vif };
        desk.enter(Effect::Made, &made);
        Ok(made.thing)
    }
}

impl Answer for ReleaseVif<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<(), DriverError> {
        let look = |desk: &Desk<'_>| {
            let port = desk.network.port(&self.vif.id)?;
            Some(Marked { owner: port.owner, thing: port.vif })
        };
        desk.watched(look, |desk| at_once(desk.vifs().release_vif(&self.owner, &self.vif)))
    }
}

impl Answer for ActivateVif<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Activation, DriverError> {
        at_once(desk.vifs().activate_vif(&self.vif))
    }
}

impl Answer for Vifs<'_> {
    fn answer(self, desk: &mut Desk<'_>) -> Result<Vec<Marked<Vif>>, DriverError> {
        at_once(desk.vifs().vifs((*self.owner).as_ref()))
    }
}
