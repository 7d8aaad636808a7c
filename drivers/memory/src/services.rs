//! The simulated load balancers and public addresses.

use std::net::IpAddr;
use std::time::Duration;

use super::MemoryOptions;
use super::load_balancers::LoadBalancers;
use super::mark::Mark;
use super::public_ips::PublicIps;
use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::{
    ClusterId, LoadBalancer, LoadBalancerId, Owned, Owner, Protocol, PublicIp, PublicIpId,
};

use tokio::time::Instant;

/// The simulated load balancers and public addresses. They may be shared by several drivers, even by those of several clusters.
#[derive(Debug)]
pub struct MemoryServices {
    options: MemoryOptions,
    state: Mutex<ServicesState>,
}

/// The state of [`MemoryServices`] that calls and tests change.
#[derive(Debug)]
pub(super) struct ServicesState {
    /// The load balancers of all clusters.
    pub(super) load_balancers: LoadBalancers,
    /// The public addresses of all clusters.
    pub(super) public_ips: PublicIps,
}

impl MemoryServices {
    /// Creates services without load balancers and with a pool of free public addresses.
    pub fn new(options: MemoryOptions) -> Self {
        let state = ServicesState {
            load_balancers: LoadBalancers::new(&options),
            public_ips: PublicIps::new(&options),
        };
        Self { options, state: Mutex::new(state) }
    }

    /// Returns the options with which the services were created.
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// Returns the existing load balancers of all clusters, each with its owner (`None` if it has none).
    pub fn load_balancers(&self) -> Vec<(Option<Owner>, LoadBalancer)> {
        let state = self.state();
        let now = Instant::now();
        state
            .load_balancers
            .by_id
            .values()
            .map(|balancer| (balancer.mark.owner.clone(), balancer.at(now)))
            .collect()
    }

    /// Returns the load balancer with this id, of any cluster, or `None` if it does not exist.
    pub fn load_balancer(&self, id: &LoadBalancerId) -> Option<Owned<LoadBalancer>> {
        let state = self.state();
        let found = state.load_balancers.by_id.get(id)?;
        Some(Owned { owner: found.mark.owner.clone(), resource: found.at(Instant::now()) })
    }

    /// Limits the number of load balancers from now on, or removes the limit (`None`). Existing load balancers stay.
    pub fn set_load_balancer_quota(&self, quota: Option<u32>) {
        self.state().load_balancers.quota = quota;
    }

    /// Puts a load balancer into the state ERROR, in which it accepts no change of a listener.
    pub fn break_load_balancer(&self, id: &LoadBalancerId) {
        if let Some(balancer) = self.state().load_balancers.by_id.get_mut(id) {
            (balancer.failed, balancer.busy_until) = (true, Instant::now());
        }
    }

    /// Makes the next `number` load balancers end in the state ERROR after their creation.
    pub fn fail_next_load_balancers(&self, number: u32) {
        self.state().load_balancers.failing_next = number;
    }

    /// Makes a load balancer PENDING for `time` from now on, as if another program had changed it.
    pub fn hold_load_balancer(&self, id: &LoadBalancerId, time: Duration) {
        if let Some(balancer) = self.state().load_balancers.by_id.get_mut(id) {
            balancer.busy_until = Instant::now() + time;
        }
    }

    /// Changes a load balancer, as an administrator could. No driver is called.
    pub fn change_load_balancer(&self, id: &LoadBalancerId, change: impl FnOnce(&mut LoadBalancer)) {
        if let Some(balancer) = self.state().load_balancers.by_id.get_mut(id) {
            change(&mut balancer.tree);
        }
    }

    /// Makes the cloud reject new listeners with this protocol, and new settings of existing ones, from now on. Existing listeners stay.
    pub fn disable_protocol(&self, protocol: Protocol) {
        self.state().load_balancers.disabled_protocols.insert(protocol);
    }

    /// Removes a load balancer, as an administrator could. No driver is called.
    pub fn remove_load_balancer(&self, id: &LoadBalancerId) {
        self.state().remove_load_balancer(id);
    }

    /// Inserts a load balancer without an ownership mark, as another controller would create it.
    pub fn insert_load_balancer(&self, load_balancer: LoadBalancer) {
        self.state().load_balancers.insert(Mark::default(), load_balancer, Instant::now());
    }

    /// Inserts a load balancer with the ownership mark of `owner` in `cluster`, even if the owner has another one, as a creation whose
    /// response was lost can leave it.
    pub fn insert_marked_load_balancer(
        &self,
        cluster: &ClusterId,
        owner: &Owner,
        load_balancer: LoadBalancer,
    ) {
        self.state().load_balancers.insert(Mark::new(cluster, owner), load_balancer, Instant::now());
    }

    /// Returns the public addresses that are in use or belong to a user, of all clusters, each with its owner (`None` if it has none).
    pub fn public_ips(&self) -> Vec<(Option<Owner>, PublicIp)> {
        let state = self.state();
        state
            .public_ips
            .by_id
            .values()
            .map(|held| (held.mark.owner.clone(), held.public_ip.clone()))
            .collect()
    }

    /// Returns the public address with this id, of any cluster, or `None` if it is neither in use nor that of a user.
    pub fn public_ip(&self, id: &PublicIpId) -> Option<Owned<PublicIp>> {
        let state = self.state();
        let held = state.public_ips.by_id.get(id)?;
        Some(Owned { owner: held.mark.owner.clone(), resource: held.public_ip.clone() })
    }

    /// Inserts a public address that a user created, which a service may name in `spec.loadBalancerIP`. Returns the id of the address.
    pub fn insert_public_ip(&self, ip: IpAddr) -> PublicIpId {
        self.state().public_ips.insert_user_address(ip)
    }

    /// Locks the load balancers and public addresses.
    pub(super) fn state(&self) -> MutexGuard<'_, ServicesState> {
        self.state.lock()
    }
}

impl ServicesState {
    /// Removes a load balancer, and disassociates the public addresses of its port.
    pub(super) fn remove_load_balancer(&mut self, id: &LoadBalancerId) {
        if let Some(removed) = self.load_balancers.by_id.remove(id) {
            self.public_ips.forget_port(&removed.tree.port);
        }
    }
}
