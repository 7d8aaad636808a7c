//! The simulated load balancers and public addresses.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::MemoryOptions;
use super::load_balancers::LoadBalancers;
use super::public_ips::PublicIps;
use crate::lock::lock;
use staffetta_driver::{LoadBalancer, LoadBalancerId, Owned, Owner, Protocol, PublicIp, PublicIpId};

use tokio::time::Instant;

/// The simulated load balancers and public addresses. Several drivers, of several clusters even, may share one.
#[derive(Debug)]
pub struct MemoryServices {
    options: MemoryOptions,
    state: Mutex<ServicesState>,
}

#[derive(Debug)]
pub(super) struct ServicesState {
    pub(super) load_balancers: LoadBalancers,
    pub(super) public_ips: PublicIps,
}

impl MemoryServices {
    /// Creates services without load balancers, whose public addresses are all free.
    pub fn new(options: MemoryOptions) -> Self {
        let state = ServicesState {
            load_balancers: LoadBalancers::new(&options),
            public_ips: PublicIps::new(&options),
        };
        Self { options, state: Mutex::new(state) }
    }

    /// Returns the initial options.
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// Returns the load balancers of all clusters, with their owners.
    pub fn load_balancers(&self) -> Vec<(Option<Owner>, LoadBalancer)> {
        let state = self.state();
        let now = Instant::now();
        state.load_balancers.all().map(|balancer| (balancer.owner.clone(), balancer.at(now))).collect()
    }

    /// Returns the load balancer with that id, of any cluster.
    pub fn load_balancer(&self, id: &LoadBalancerId) -> Option<Owned<LoadBalancer>> {
        let state = self.state();
        let found = state.load_balancers.get(id)?;
        Some(Owned { owner: found.owner.clone(), thing: found.at(Instant::now()) })
    }

    /// Limits the number of load balancers, or removes the limit.
    pub fn set_load_balancer_quota(&self, quota: Option<u32>) {
        self.state().load_balancers.quota = quota;
    }

    /// Makes a load balancer fail: it is in the state ERROR from now on.
    pub fn break_load_balancer(&self, id: &LoadBalancerId) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            (balancer.failed, balancer.busy_until) = (true, Instant::now());
        }
    }

    /// Lets the creation of the next `number` load balancers fail.
    pub fn fail_next_load_balancers(&self, number: u32) {
        self.state().load_balancers.failing_next = number;
    }

    /// Makes a load balancer PENDING for another `time`, as after a change from outside.
    pub fn hold_load_balancer(&self, id: &LoadBalancerId, time: Duration) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            balancer.busy_until = Instant::now() + time;
        }
    }

    /// Changes a load balancer, without a call of a driver.
    pub fn change_load_balancer(&self, id: &LoadBalancerId, change: impl FnOnce(&mut LoadBalancer)) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            change(&mut balancer.tree);
        }
    }

    /// Supports this protocol no more; existing listeners go on.
    pub fn disable_protocol(&self, protocol: Protocol) {
        self.state().load_balancers.disabled_protocols.insert(protocol);
    }

    /// Removes a load balancer, without a call of a driver.
    pub fn remove_load_balancer(&self, id: &LoadBalancerId) {
        self.state().remove_load_balancer(id);
    }

    /// Inserts a load balancer without a mark, as from another controller.
    pub fn insert_load_balancer(&self, load_balancer: LoadBalancer) {
        self.state().load_balancers.insert_unmarked(load_balancer, Instant::now());
    }

    /// Returns the public addresses that are in use or belong to a user, with their owners.
    pub fn public_ips(&self) -> Vec<(Option<Owner>, PublicIp)> {
        let state = self.state();
        state.public_ips.all().map(|held| (held.owner.clone(), held.public_ip.clone())).collect()
    }

    /// Returns the public address with that id, of any cluster.
    pub fn public_ip(&self, id: &PublicIpId) -> Option<Owned<PublicIp>> {
        let state = self.state();
        let held = state.public_ips.get(id)?;
        Some(Owned { owner: held.owner.clone(), thing: held.public_ip.clone() })
    }

    /// Inserts a public address of a user, for `spec.loadBalancerIP`.
    pub fn insert_public_ip(&self, ip: IpAddr) -> PublicIpId {
        self.state().public_ips.insert_users(ip)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ServicesState> {
        lock(&self.state)
    }
}

impl ServicesState {
    /// A port that is gone has no public address.
    pub(super) fn remove_load_balancer(&mut self, id: &LoadBalancerId) {
        if let Some(removed) = self.load_balancers.remove(id) {
            self.public_ips.forget_port(&removed.port);
        }
    }
}
