//! The simulated load balancers and public addresses.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::MemoryOptions;
use super::load_balancers::LoadBalancers;
use super::public_ips::PublicIps;
use crate::id::{LoadBalancerId, PublicIpId};
use crate::load_balancer::{LoadBalancer, Protocol};
use crate::owner::{Marked, Owner};
use crate::service_public_ip::PublicIp;

use tokio::time::Instant;

/// The simulated load balancers and public addresses. Several drivers, of several clusters even, may share one.
#[derive(Debug)]
pub struct MemoryServices {
    options: MemoryOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) load_balancers: LoadBalancers,
    pub(super) public_ips: PublicIps,
}

impl MemoryServices {
    /// A world without load balancers, in which all public addresses are free.
    pub fn new(options: MemoryOptions) -> Self {
        let state =
            State { load_balancers: LoadBalancers::new(&options), public_ips: PublicIps::new(&options) };
        Self { options, state: Mutex::new(state) }
    }

    /// The options with which the world began.
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// The load balancers that exist, whoever made them, with their owners.
    pub fn load_balancers(&self) -> Vec<(Option<Owner>, LoadBalancer)> {
        let state = self.state();
        let now = Instant::now();
        state.load_balancers.all().map(|balancer| (balancer.owner.clone(), balancer.at(now))).collect()
    }

    /// The load balancer of that id, whoever made it.
    pub fn load_balancer(&self, id: &LoadBalancerId) -> Option<Marked<LoadBalancer>> {
        let state = self.state();
        let found = state.load_balancers.get(id)?;
        Some(Marked { owner: found.owner.clone(), thing: found.at(Instant::now()) })
    }

    /// Allows only so many load balancers from now on, or any number.
    pub fn set_load_balancer_quota(&self, quota: Option<u32>) {
        self.state().load_balancers.quota = quota;
    }

    /// Makes a load balancer fail: it is in the state ERROR from now on.
    pub fn break_load_balancer(&self, id: &LoadBalancerId) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            (balancer.failed, balancer.busy_until) = (true, Instant::now());
        }
    }

    /// Lets the next `number` load balancers fail while they are made.
    pub fn doom_load_balancers(&self, number: u32) {
        self.state().load_balancers.doomed = number;
    }

    /// Makes a load balancer PENDING for another `time`, as if somebody else changed it.
    pub fn hold_load_balancer(&self, id: &LoadBalancerId, time: Duration) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            balancer.busy_until = Instant::now() + time;
        }
    }

    /// Changes a load balancer behind everybody's back.
    pub fn change_load_balancer(&self, id: &LoadBalancerId, change: impl FnOnce(&mut LoadBalancer)) {
        if let Some(balancer) = self.state().load_balancers.get_mut(id) {
            change(&mut balancer.tree);
        }
    }

    /// Nobody serves this protocol from now on; listeners that stand go on.
    pub fn lack_protocol(&self, protocol: Protocol) {
        self.state().load_balancers.lacking.insert(protocol);
    }

    /// Takes a load balancer away behind everybody's back.
    pub fn remove_load_balancer(&self, id: &LoadBalancerId) {
        self.state().remove_load_balancer(id);
    }

    /// Puts a load balancer there that bears no mark, as somebody else made it.
    pub fn insert_load_balancer(&self, load_balancer: LoadBalancer) {
        self.state().load_balancers.insert_unmarked(load_balancer, Instant::now());
    }

    /// The public addresses that are in use or belong to a user, with their owners.
    pub fn public_ips(&self) -> Vec<(Option<Owner>, PublicIp)> {
        let state = self.state();
        state.public_ips.all().map(|held| (held.owner.clone(), held.public_ip.clone())).collect()
    }

    /// The public address of that id, whoever made it.
    pub fn public_ip(&self, id: &PublicIpId) -> Option<Marked<PublicIp>> {
        let state = self.state();
        let held = state.public_ips.get(id)?;
        Some(Marked { owner: held.owner.clone(), thing: held.public_ip.clone() })
    }

    /// A user makes a public address, to name it in `spec.loadBalancerIP`.
    pub fn insert_public_ip(&self, ip: IpAddr) -> PublicIpId {
        self.state().public_ips.insert_users(ip)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A port that is gone has no public address.
    pub(super) fn remove_load_balancer(&mut self, id: &LoadBalancerId) {
        if let Some(removed) = self.load_balancers.remove(id) {
            self.public_ips.forget_port(&removed.port);
        }
    }
}
