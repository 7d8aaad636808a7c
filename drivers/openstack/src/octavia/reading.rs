//! What stands: whole trees, by one list a kind.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::try_join_all;
use staffetta_driver::{
    DriverError, Listener, LoadBalancer, LoadBalancerId, Marked, Member, Owner, Pool, PoolId, PortId,
    ProjectId, SecurityGroupId, SubnetId,
};

use super::LbaasV2Driver;
use super::api::Filter;
use super::filter::filter;
use super::options::MemberMode;
use super::tree;
use super::wire::{
    GOING, LOAD_BALANCER_FIELDS, ListenerTold, LoadBalancerTold, MemberTold, MonitorTold, POOL_FIELDS,
    PoolTold,
};
use crate::error::OpenStackError;
use crate::mark::{self, cluster_tag, uid_of};

impl LbaasV2Driver {
    /// The load balancers that this cluster marked, or those for `owner`, each with its owner and without what hangs on it;
    /// those that go are among them.
    pub(super) async fn marked(
        &self,
        owner: Option<&Owner>,
    ) -> Result<Vec<(Owner, LoadBalancerTold)>, OpenStackError> {
        const STEP: &str = "list the load balancers of this cluster";
        let filter = filter(self.octavia.features().await?, &self.cluster, owner);
        let told = self.octavia.load_balancers(STEP, &filter, &LOAD_BALANCER_FIELDS).await?;
        let marked = told.into_iter().filter_map(|told| {
            let marked = self.owner_of(&told)?;
            owner.is_none_or(|owner| owner.uid == marked.uid).then_some((marked, told))
        });
        Ok(marked.collect())
    }

    /// For whom a load balancer was made; none when this cluster did not mark it.
    pub(super) fn owner_of(&self, told: &LoadBalancerTold) -> Option<Owner> {
        let described = mark::owner_in(&told.description, &self.cluster);
        described.or_else(|| {
            if !told.tags.contains(&cluster_tag(&self.cluster)) {
                return None;
            }
            let uid = told.tags.iter().find_map(|tag| uid_of(tag))?;
            let (namespace, name) = told.name.split_once('/').unwrap_or(("", &told.name));
            Some(Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid })
        })
    }

    /// The trees of all marked load balancers, or of those that are marked for `owner`. What goes is none.
    pub(super) async fn trees(
        &self,
        owner: Option<&Owner>,
    ) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        let look = self.memory.look();
        let marked = self.marked(owner).await?;
        let ports = match owner {
            Some(owner) if !self.ports.may_have(owner) => Vec::new(),
            _ => self.ports.marked(owner).await?,
        };
        let used: BTreeSet<PortId> = marked.iter().filter_map(|(_, told)| told.vip_port_id.clone()).collect();
        let standing: Vec<_> =
            marked.into_iter().filter(|(_, told)| told.provisioning_status != GOING).collect();
        let hanging = self.hanging(standing.iter().map(|(_, told)| told)).await?;
        let mut trees = Vec::new();
        let mut pools = Vec::new();
        for ((owner, told), listeners) in standing.iter().zip(hanging) {
            pools.extend(
                listeners.iter().filter_map(|listener| listener.pool.as_ref()).map(|pool| pool.id.clone()),
            );
            if let Some(thing) = tree::load_balancer(told, groups_of(told), listeners) {
                self.memory.owns(&owner.uid, &told.id);
                trees.push(Marked { owner: Some(owner.clone()), thing });
            }
        }
        match owner {
            Some(owner) => self.memory.looked(&owner.uid),
            None => self.memory.listed(look, standing.iter().map(|(_, told)| &told.id), pools.iter()),
        }
        let left = ports.iter().filter(|(_, port)| !used.contains(&super::vip_port::port_id(port)));
        trees.extend(left.filter_map(|(owner, port)| {
            Some(Marked { owner: Some(owner.clone()), thing: tree::half_made(owner, port)? })
        }));
        Ok(trees)
    }

    /// The tree of one load balancer.
    pub(super) async fn tree(&self, told: &LoadBalancerTold) -> Result<Option<LoadBalancer>, DriverError> {
        let listeners = self.hanging(std::iter::once(told)).await?.pop().unwrap_or_default();
        Ok(tree::load_balancer(told, groups_of(told), listeners))
    }

    /// What hangs on each of these load balancers, in their order: its listeners, by protocol and port.
    async fn hanging<'a>(
        &self,
        standing: impl Iterator<Item = &'a LoadBalancerTold> + Clone,
    ) -> Result<Vec<Vec<Listener>>, DriverError> {
        let Some(scope) = scope(standing.clone()) else { return Ok(Vec::new()) };
        let (listeners, pools) = futures_util::try_join!(
            self.octavia.listeners("list the listeners of this cluster", &scope),
            self.octavia.pools("list the pools of this cluster", &scope, &POOL_FIELDS),
        )?;
        let mut by_balancer: HashMap<LoadBalancerId, Vec<ListenerTold>> = HashMap::new();
        for listener in listeners {
            let Some(balancer) = listener.loadbalancers.first() else { continue };
            by_balancer.entry(balancer.id.clone()).or_default().push(listener);
        }
        let monitors = self.monitors(&scope, &pools).await?;
        let pools: HashMap<PoolId, PoolTold> =
            pools.into_iter().map(|pool| (pool.id.clone(), pool)).collect();
        let trees = standing.map(|told| {
            let mut listeners = by_balancer.remove(&told.id).unwrap_or_default();
            listeners.sort_by(|one, other| {
                (&one.protocol, one.protocol_port).cmp(&(&other.protocol, other.protocol_port))
            });
            self.listeners(told, listeners, &pools, &monitors)
        });
        try_join_all(trees).await
    }

    /// The listeners of one load balancer with their pools. Members that this process never saw are read.
    async fn listeners(
        &self,
        told: &LoadBalancerTold,
        listeners: Vec<ListenerTold>,
        pools: &HashMap<PoolId, PoolTold>,
        monitors: &HashMap<String, MonitorTold>,
    ) -> Result<Vec<Listener>, DriverError> {
        let pool_of = |listener: &ListenerTold| pools.get(listener.default_pool_id.as_ref()?);
        let known = |pool: &PoolTold| {
            self.memory.members(&pool.id, pool.members.iter().map(|member| &member.id)).is_some()
        };
        let unknown: Vec<&PoolTold> =
            listeners.iter().filter_map(pool_of).filter(|pool| !known(pool)).collect();
        if !unknown.is_empty() {
            self.learn_members(told, &unknown).await?;
        }
        let listeners = listeners.iter().filter_map(|listener| {
            let pool = pool_of(listener).map(|pool| {
                let monitor = pool.healthmonitor_id.as_ref().and_then(|id| monitors.get(id));
                let ids = pool.members.iter().map(|member| &member.id);
                // What changed since the members were read is seen by the next look.
                let members = self.memory.members(&pool.id, ids);
                tree::pool(
                    pool,
                    monitor,
                    members.or_else(|| self.memory.last_members(&pool.id)).unwrap_or_default(),
                )
            });
            tree::listener(listener, pool)
        });
        Ok(listeners.collect())
    }

    /// Reads the members of these pools of a load balancer. One answer has those of all, but without their subnets: where these
    /// may differ, pool by pool.
    async fn learn_members(&self, told: &LoadBalancerTold, pools: &[&PoolTold]) -> Result<(), DriverError> {
        let mut learned: Vec<(PoolId, Vec<MemberTold>)> = Vec::new();
        match self.members.mode {
            MemberMode::L2 => {
                for pool in pools {
                    let members = self.octavia.members(&pool.id).await?;
                    learned.push((pool.id.clone(), members.unwrap_or_default()));
                }
            }
            MemberMode::L3 => {
                let states = self.octavia.states(&told.id).await?;
                let listeners = states.into_iter().flat_map(|states| states.loadbalancer.listeners);
                learned.extend(
                    listeners.flat_map(|listener| listener.pools).map(|pool| (pool.id, pool.members)),
                );
            }
        }
        let subnet = told.vip_subnet_id.clone().unwrap_or_default();
        for (pool, mut members) in learned {
            members.retain(|member| member.provisioning_status != GOING);
            self.memory.remember(&pool, &members_told(&members, &subnet));
        }
        Ok(())
    }

    /// The health monitors of these pools by their ids. Where there are none, nobody is asked.
    async fn monitors(
        &self,
        scope: &Filter,
        pools: &[PoolTold],
    ) -> Result<HashMap<String, MonitorTold>, OpenStackError> {
        if pools.iter().all(|pool| pool.healthmonitor_id.is_none()) {
            return Ok(HashMap::new());
        }
        // A monitor knows no load balancer: those of the project are read.
        let scope = scope.iter().filter(|(name, _)| *name == PROJECT).cloned().collect();
        let monitors = self.octavia.monitors("list the health monitors of this cluster", &scope).await?;
        Ok(monitors.into_iter().map(|monitor| (monitor.id.clone(), monitor)).collect())
    }

    /// The whole tree as the answer to its creation tells it.
    pub(super) fn tree_of_answer(&self, told: &LoadBalancerTold) -> Vec<Listener> {
        let subnet = told.vip_subnet_id.clone().unwrap_or_default();
        let mut pools: HashMap<PoolId, Pool> = HashMap::new();
        for pool in &told.pools {
            let members = members_told(&pool.members, &subnet);
            self.memory.remember(&pool.id, &members);
            pools.insert(pool.id.clone(), tree::pool(pool, pool.healthmonitor.as_ref(), members));
        }
        let listeners = told.listeners.iter().filter_map(|listener| {
            tree::listener(listener, listener.default_pool_id.as_ref().and_then(|id| pools.remove(id)))
        });
        listeners.collect()
    }
}

/// Members as they are told, of a load balancer whose own address is in the subnet `vip`.
pub(super) fn members_told(told: &[MemberTold], vip: &SubnetId) -> Vec<Member> {
    told.iter().filter_map(|told| tree::member(told, vip)).collect()
}

/// The security groups that Octavia was told to put before a load balancer, sorted. Which its port has is Octavia's business,
/// whoever made the port: there is one of its own among them.
fn groups_of(told: &LoadBalancerTold) -> Vec<SecurityGroupId> {
    let mut groups = told.vip_sg_ids.clone();
    groups.sort_unstable();
    groups
}

const PROJECT: &str = "project_id";

/// What the listeners and pools of these load balancers pass, and as few others as possible; none for no load balancer.
fn scope<'a>(standing: impl Iterator<Item = &'a LoadBalancerTold> + Clone) -> Option<Filter> {
    let mut ids = standing.clone().map(|told| &told.id);
    let (first, second) = (ids.next()?, ids.next());
    let projects: BTreeSet<&ProjectId> = standing.map(|told| &told.project_id).collect();
    let project = projects.first().filter(|_| projects.len() == 1).map(|id| (PROJECT, id.to_string()));
    let only = second.is_none().then(|| ("loadbalancer_id", first.to_string()));
    Some(only.into_iter().chain(project).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(id: &str, project: &str) -> LoadBalancerTold {
        LoadBalancerTold { id: id.into(), project_id: project.into(), ..LoadBalancerTold::default() }
    }

    #[test]
    fn lists_have_as_little_of_others_as_can_be_said() {
        let of = |standing: &[LoadBalancerTold]| scope(standing.iter());
        assert_eq!(of(&[]), None);
        let one = vec![("loadbalancer_id", "a".to_owned()), ("project_id", "p".to_owned())];
        assert_eq!(of(&[told("a", "p")]), Some(one));
        assert_eq!(of(&[told("a", "p"), told("b", "p")]), Some(vec![("project_id", "p".to_owned())]));
        assert_eq!(of(&[told("a", "p"), told("b", "q")]), Some(vec![]));
    }
}
