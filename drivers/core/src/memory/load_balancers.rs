//! The simulated load balancers, without a lock and with the clock passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::MemoryOptions;
use crate::error::{DriverError, Reason};
use crate::id::{ClusterId, LoadBalancerId, PoolId, PortId};
use crate::load_balancer::{
    Listener, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec, Pool, Provisioning,
};
use crate::owner::Owner;

/// All load balancers.
#[derive(Debug)]
pub(super) struct LoadBalancers {
    pub(super) quota: Option<u32>,
    subnet: Option<IpNet>,
    delay: Duration,
    balancers: BTreeMap<LoadBalancerId, Balancer>,
    /// How many things were ever made: the number of the next one.
    made: u32,
}

/// A load balancer with its mark.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) cluster: Option<ClusterId>,
    pub(super) owner: Option<Owner>,
    tree: LoadBalancer,
    /// Until when it takes no change.
    busy_until: Instant,
    failed: bool,
}

impl Balancer {
    /// The load balancer as it is now.
    pub(super) fn at(&self, now: Instant) -> LoadBalancer {
        let status = match self.failed {
            true => Provisioning::Error,
            false if now < self.busy_until => Provisioning::Pending,
            false => Provisioning::Active,
        };
        LoadBalancer { status, ..self.tree.clone() }
    }

    pub(super) fn is_of(&self, cluster: &ClusterId, owner: Option<&Owner>) -> bool {
        let marked_for = |owner: &Owner| self.owner.as_ref().is_some_and(|marked| marked.uid == owner.uid);
        self.cluster.as_ref() == Some(cluster) && owner.is_none_or(marked_for)
    }

    fn settled(&self, step: &'static str, now: Instant) -> Result<(), DriverError> {
        let id = &self.tree.id;
        if now < self.busy_until {
            let error = DriverError::new(Reason::Conflict, step).after(self.busy_until - now);
            return Err(error.detail(format!("the load balancer {id} is PENDING_UPDATE")));
        }
        Ok(())
    }
}

impl LoadBalancers {
    pub(super) fn new(options: &MemoryOptions) -> Self {
        Self {
            quota: options.load_balancer_quota,
            subnet: options.service_subnet,
            delay: options.load_balancer_delay(),
            balancers: BTreeMap::new(),
            made: 0,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Balancer> {
        self.balancers.values()
    }

    pub(super) fn get(&self, id: &LoadBalancerId) -> Option<&Balancer> {
        self.balancers.get(id)
    }

    pub(super) fn has_port(&self, port: &PortId) -> bool {
        self.balancers.values().any(|balancer| balancer.tree.port == *port)
    }

    pub(super) fn fail(&mut self, id: &LoadBalancerId) {
        if let Some(balancer) = self.balancers.get_mut(id) {
            balancer.failed = true;
        }
    }

    pub(super) fn insert_unmarked(&mut self, load_balancer: LoadBalancer, now: Instant) {
        let id = load_balancer.id.clone();
        let balancer =
            Balancer { cluster: None, owner: None, tree: load_balancer, busy_until: now, failed: false };
        self.balancers.insert(id, balancer);
    }

    pub(super) fn remove(&mut self, id: &LoadBalancerId) -> Option<LoadBalancer> {
        self.balancers.remove(id).map(|balancer| balancer.tree)
    }

    pub(super) fn ensure(
        &mut self,
        cluster: &ClusterId,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        now: Instant,
    ) -> Result<LoadBalancer, DriverError> {
        const STEP: &str = "make a load balancer";
        let found = self.balancers.values_mut().find(|balancer| {
            let adopted = || balancer.cluster.is_none() && spec.adopt.as_ref() == Some(&balancer.tree.id);
            balancer.is_of(cluster, Some(owner)) || adopted()
        });
        if let Some(balancer) = found {
            (balancer.cluster, balancer.owner) = (Some(cluster.clone()), Some(owner.clone()));
            if balancer.tree.security_groups != spec.security_groups {
                balancer.settled("change the security groups of a load balancer", now)?;
                balancer.tree.security_groups.clone_from(&spec.security_groups);
                balancer.busy_until = now + self.delay;
            }
            return Ok(balancer.at(now));
        }
        if let Some(quota) = self.quota.filter(|quota| self.balancers.len() >= *quota as usize) {
            return Err(DriverError::new(Reason::Quota, STEP).detail(format!("{quota} are allowed")));
        }
        if let Some(subnet) = self.subnet.filter(|subnet| !subnet.contains(&spec.vip)) {
            let detail = format!("{} lies outside of the subnet {subnet}", spec.vip);
            return Err(DriverError::new(Reason::Refused, STEP).detail(detail));
        }
        if self.balancers.values().any(|balancer| balancer.tree.vip == spec.vip) {
            return Err(DriverError::new(Reason::Conflict, STEP).detail(format!("{} is in use", spec.vip)));
        }
        let tree = LoadBalancer {
            id: self.id(1).into(),
            project: spec.project.clone(),
            name: spec.name.clone(),
            vip: spec.vip,
            subnet: spec.subnet.clone(),
            port: self.id(5).into(),
            provider: Some("memory".into()),
            security_groups: spec.security_groups.clone(),
            status: Provisioning::Pending,
            listeners: Vec::new(),
        };
        let balancer = Balancer {
            cluster: Some(cluster.clone()),
            owner: Some(owner.clone()),
            tree,
            busy_until: now + self.delay,
            failed: false,
        };
        let made = balancer.at(now);
        self.balancers.insert(made.id.clone(), balancer);
        Ok(made)
    }

    /// Whether the load balancer may be removed now: false when there is nothing of `owner` to remove.
    pub(super) fn removable(
        &self,
        cluster: &ClusterId,
        owner: &Owner,
        id: &LoadBalancerId,
        now: Instant,
    ) -> Result<bool, DriverError> {
        match self.balancers.get(id).filter(|balancer| balancer.is_of(cluster, Some(owner))) {
            Some(balancer) if balancer.failed => Ok(true),
            Some(balancer) => balancer.settled("release a load balancer", now).map(|()| true),
            None => Ok(false),
        }
    }

    pub(super) fn ensure_listener(
        &mut self,
        id: &LoadBalancerId,
        at: ListenerSpec,
        now: Instant,
    ) -> Result<Listener, DriverError> {
        let (listener_id, pool_id) = (self.id(2), self.id(3));
        self.change(id, "make a listener", now, |load_balancer| {
            if !load_balancer.listeners.iter().any(|listener| listener.at == at) {
                load_balancer.listeners.push(Listener { id: listener_id.into(), at, pool: None });
            }
            let mut listeners = load_balancer.listeners.iter_mut();
            let listener = listeners.find(|listener| listener.at == at).expect("it was there or was pushed");
            listener.pool.get_or_insert_with(|| Pool { id: pool_id.into(), members: Vec::new() });
            Ok(listener.clone())
        })
    }

    pub(super) fn remove_listener(
        &mut self,
        id: &LoadBalancerId,
        listener: &Listener,
        now: Instant,
    ) -> Result<(), DriverError> {
        if !self.balancers.contains_key(id) {
            return Ok(());
        }
        self.change(id, "release a listener", now, |load_balancer| {
            load_balancer.listeners.retain(|present| present.id != listener.id);
            Ok(())
        })
    }

    pub(super) fn set_members(
        &mut self,
        id: &LoadBalancerId,
        pool: &PoolId,
        wanted: &[MemberSpec],
        now: Instant,
    ) -> Result<Vec<Member>, DriverError> {
        const STEP: &str = "set the members of a pool";
        let fresh: Vec<_> = wanted.iter().map(|_| self.id(4)).collect();
        self.change(id, STEP, now, |load_balancer| {
            let mut pools = load_balancer.listeners.iter_mut().filter_map(|listener| listener.pool.as_mut());
            let found = pools.find(|present| present.id == *pool);
            let missing = || DriverError::new(Reason::NotFound, STEP).detail(format!("pool {pool}"));
            let pool = found.ok_or_else(missing)?;
            let keep = |spec: &MemberSpec| {
                let same = |member: &&Member| (member.spec.ip, member.spec.port) == (spec.ip, spec.port);
                pool.members.iter().find(same).map(|member| member.id.clone())
            };
            let members = wanted.iter().zip(fresh).map(|(spec, fresh)| Member {
                id: keep(spec).unwrap_or_else(|| fresh.into()),
                spec: spec.clone(),
            });
            pool.members = members.collect();
            Ok(pool.members.clone())
        })
    }

    /// Makes a change; only one that changes something keeps the load balancer busy.
    fn change<T>(
        &mut self,
        id: &LoadBalancerId,
        step: &'static str,
        now: Instant,
        change: impl FnOnce(&mut LoadBalancer) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let missing = || DriverError::new(Reason::NotFound, step).detail(format!("load balancer {id}"));
        let balancer = self.balancers.get_mut(id).ok_or_else(missing)?;
        if balancer.failed {
            let detail = format!("the load balancer {id} is in the state ERROR");
            return Err(DriverError::new(Reason::Refused, step).detail(detail));
        }
        balancer.settled(step, now)?;
        let mut changed = balancer.tree.clone();
        let answer = change(&mut changed)?;
        if changed != balancer.tree {
            balancer.tree = changed;
            balancer.busy_until = now + self.delay;
        }
        Ok(answer)
    }

    /// An id that looks like those of OpenStack; `kind` tells what it names.
    fn id(&mut self, kind: u8) -> String {
        self.made += 1;
        format!("{:08x}-0000-4000-800{kind}-{:012x}", self.made, self.made)
    }
}
