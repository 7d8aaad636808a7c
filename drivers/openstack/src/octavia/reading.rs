//! Reads load balancers with their listeners, pools and members. There is one list request for each kind of resource.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::try_join_all;
use staffetta_driver::{
    ClusterId, Listener, LoadBalancer, LoadBalancerId, MemberId, Owned, Owner, PoolId, ProjectId,
    SecurityGroupId,
};

use super::LbaasV2Driver;
use super::features::Filter;
use super::options::MemberMode;
use super::tree;
use super::vip_port::port_id;
use super::wire::{
    ListenerBody, LoadBalancerBody, MemberBody, MonitorBody, OctaviaResource, PENDING_DELETE, PoolBody,
};
use crate::error::{DriverResult, Result};
use crate::mark::{self, cluster_tag, uid_of};

/// The query parameter that filters a list by project.
const PROJECT: &str = "project_id";

impl LbaasV2Driver {
    /// Lists the load balancers with the ownership mark of this cluster, or only those of `owner`, including those that are being deleted.
    pub(super) async fn marked(&self, owner: Option<&Owner>) -> Result<Vec<(Owner, LoadBalancerBody)>> {
        let filter = self.octavia.features().await?.filter(&self.cluster, owner);
        let step = "list the load balancers of this cluster";
        let bodies: Vec<LoadBalancerBody> =
            self.octavia.list(step, &filter, LoadBalancerBody::FIELDS).await?;
        let marked = bodies.into_iter().filter_map(|body| {
            let marked = self.owner_of(&body)?;
            owner.is_none_or(|owner| owner.uid == marked.uid).then_some((marked, body))
        });
        Ok(marked.collect())
    }

    /// Returns the owner that the ownership mark of a load balancer names. Returns `None` if it has no mark of this cluster, or is not in
    /// the projects of the configuration.
    pub(super) fn owner_of(&self, body: &LoadBalancerBody) -> Option<Owner> {
        self.octavia.owns(&body.project_id).then(|| marked_owner(body, &self.cluster))?
    }

    /// Reads the load balancers with the ownership mark of this cluster, or only those of `owner`, with their listeners, pools and members.
    /// Load balancers that are being deleted are omitted. A port of a virtual address that no load balancer uses is returned as a failed
    /// load balancer.
    pub(super) async fn trees(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<LoadBalancer>>> {
        let list = self.cache.owners.start_list();
        let marked = self.marked(owner).await?;
        let ports = match owner {
            Some(owner) if !self.ports.may_have(owner) => Vec::new(),
            _ => self.ports.marked(owner).await?,
        };
        let used: BTreeSet<_> = marked.iter().filter_map(|(_, body)| body.vip_port_id.clone()).collect();
        let (owners, bodies): (Vec<_>, Vec<_>) =
            marked.into_iter().filter(|(_, body)| body.provisioning_status != PENDING_DELETE).unzip();
        let listeners = self.listeners(&bodies).await?;
        let pools = listeners.iter().flatten().filter_map(|listener| listener.pool.as_ref());
        let pools: Vec<PoolId> = pools.map(|pool| pool.id.clone()).collect();
        let mut trees = Vec::new();
        for ((owner, body), listeners) in owners.into_iter().zip(&bodies).zip(listeners) {
            if let Some(resource) = tree::load_balancer(body, security_groups(body), listeners) {
                self.cache.owners.insert(body.id.clone(), owner.uid.clone());
                trees.push(Owned { owner: Some(owner), resource });
            }
        }
        match owner {
            Some(owner) => drop(self.cache.dirty.remove(&owner.uid)),
            None => self.cache.end_list(list, bodies.iter().map(|body| &body.id), pools.iter()),
        }
        let unused = ports.iter().filter(|(_, port)| !used.contains(&port_id(port)));
        trees.extend(unused.filter_map(|(owner, port)| {
            Some(Owned { owner: Some(owner.clone()), resource: tree::failed_load_balancer(owner, port)? })
        }));
        Ok(trees)
    }

    /// Reads the listeners of one load balancer, and returns it with them, or `None` if it has no address or no subnet.
    pub(super) async fn tree(&self, body: &LoadBalancerBody) -> DriverResult<Option<LoadBalancer>> {
        let listeners = self.listeners(std::slice::from_ref(body)).await?.pop().unwrap_or_default();
        Ok(tree::load_balancer(body, security_groups(body), listeners))
    }

    /// Reads the listeners of each of these load balancers. The results are in the order of `bodies`, each sorted by protocol and port.
    async fn listeners(&self, bodies: &[LoadBalancerBody]) -> DriverResult<Vec<Vec<Listener>>> {
        let Some(scope) = scope(bodies) else { return Ok(Vec::new()) };
        let (listeners, pools) = tokio::try_join!(
            self.octavia.list::<ListenerBody>(
                "list the listeners of this cluster",
                &scope,
                ListenerBody::FIELDS
            ),
            self.octavia.list::<PoolBody>("list the pools of this cluster", &scope, PoolBody::FIELDS),
        )?;
        let mut by_balancer: HashMap<LoadBalancerId, Vec<ListenerBody>> = HashMap::new();
        for listener in listeners {
            let Some(balancer) = listener.loadbalancers.first() else { continue };
            by_balancer.entry(balancer.id.clone()).or_default().push(listener);
        }
        let monitors = self.monitors(&scope, &pools).await?;
        let pools: HashMap<PoolId, PoolBody> =
            pools.into_iter().map(|pool| (pool.id.clone(), pool)).collect();
        let read = bodies.iter().map(|body| {
            let mut listeners = by_balancer.remove(&body.id).unwrap_or_default();
            listeners.sort_by(|one, other| {
                (&one.protocol, one.protocol_port).cmp(&(&other.protocol, other.protocol_port))
            });
            let (pools, monitors) = (&pools, &monitors);
            async move {
                self.read_members(body, &listeners, pools).await?;
                Ok(self.assemble(&listeners, pools, monitors))
            }
        });
        try_join_all(read).await
    }

    /// Reads the members of a load balancer's pools that are not cached, and caches them. In the mode `L3`, one status tree contains the
    /// members of all pools, without their subnets. In the mode `L2`, in which the subnets differ, the members of each pool are listed.
    async fn read_members(
        &self,
        body: &LoadBalancerBody,
        listeners: &[ListenerBody],
        pools: &HashMap<PoolId, PoolBody>,
    ) -> DriverResult<()> {
        let attached = listeners.iter().filter_map(|listener| pools.get(listener.default_pool_id.as_ref()?));
        let unknown: Vec<&PoolBody> = attached
            .filter(|pool| self.cache.current_members(&pool.id, member_ids(pool)).is_none())
            .collect();
        let mut read: Vec<(PoolId, Vec<MemberBody>)> = Vec::new();
        match self.members.mode {
            _ if unknown.is_empty() => {}
            MemberMode::L2 => {
                for pool in unknown {
                    let members = self.octavia.members(&pool.id).await?;
                    read.push((pool.id.clone(), members.unwrap_or_default()));
                }
            }
            MemberMode::L3 => {
                let tree = self.octavia.status_tree(&body.id).await?;
                let listeners = tree.into_iter().flat_map(|tree| tree.loadbalancer.listeners);
                let pools = listeners.flat_map(|listener| listener.pools);
                read.extend(pools.map(|pool| (pool.id, pool.members)));
            }
        }
        let subnet = body.vip_subnet_id.clone().unwrap_or_default();
        for (pool, mut members) in read {
            members.retain(|member| member.provisioning_status != PENDING_DELETE);
            self.cache.members.insert(pool, tree::members(&members, &subnet));
        }
        Ok(())
    }

    /// Combines listeners with their pools, monitors and cached members. If the cached members are not those whose ids the pool contains,
    /// because members were changed meanwhile or are being deleted, they are used nevertheless. The next call that reads the load balancer
    /// reads them again if they still differ.
    fn assemble(
        &self,
        listeners: &[ListenerBody],
        pools: &HashMap<PoolId, PoolBody>,
        monitors: &HashMap<String, MonitorBody>,
    ) -> Vec<Listener> {
        let pool = |body: &PoolBody| {
            let listed = body.healthmonitor_id.as_ref().and_then(|id| monitors.get(id));
            let members = self.cache.current_members(&body.id, member_ids(body));
            let members = members
                .or_else(|| self.cache.members.get(&body.id).map(|last| last.clone()))
                .unwrap_or_default();
            tree::pool(body, body.healthmonitor.as_ref().or(listed), members)
        };
        let listener = |body: &ListenerBody| {
            let default_pool = body.default_pool_id.as_ref().and_then(|id| pools.get(id));
            tree::listener(body, default_pool.map(pool))
        };
        listeners.iter().filter_map(listener).collect()
    }

    /// Returns the listeners in the response to the creation of a load balancer, and caches their members.
    pub(super) fn created_listeners(&self, body: &LoadBalancerBody) -> Vec<Listener> {
        let subnet = body.vip_subnet_id.clone().unwrap_or_default();
        for pool in &body.pools {
            self.cache.members.insert(pool.id.clone(), tree::members(&pool.members, &subnet));
        }
        let pools = body.pools.iter().map(|pool| (pool.id.clone(), pool.clone())).collect();
        self.assemble(&body.listeners, &pools, &HashMap::new())
    }

    /// Returns a map from ids to health monitors that contains at least those of these pools. Monitors cannot be listed by load balancer,
    /// so those of the project in `scope` are listed, or those of all projects if it names none. Sends no request if no pool has one.
    async fn monitors(&self, scope: &Filter, pools: &[PoolBody]) -> Result<HashMap<String, MonitorBody>> {
        if pools.iter().all(|pool| pool.healthmonitor_id.is_none()) {
            return Ok(HashMap::new());
        }
        let scope = scope.iter().filter(|(name, _)| *name == PROJECT).cloned().collect();
        let step = "list the health monitors of this cluster";
        let monitors: Vec<MonitorBody> = self.octavia.list(step, &scope, MonitorBody::FIELDS).await?;
        Ok(monitors.into_iter().map(|monitor| (monitor.id.clone(), monitor)).collect())
    }
}

/// Returns the ids of the members of a pool.
fn member_ids(pool: &PoolBody) -> impl Iterator<Item = &MemberId> {
    pool.members.iter().map(|member| &member.id)
}

/// Returns the owner that the ownership mark of a load balancer names, from its description or else from its tags, or `None` without a
/// mark of `cluster`.
pub(super) fn marked_owner(body: &LoadBalancerBody, cluster: &ClusterId) -> Option<Owner> {
    let described = mark::owner_in(&body.description, cluster);
    described.or_else(|| {
        body.tags.contains(&cluster_tag(cluster)).then_some(())?;
        let uid = body.tags.iter().find_map(|tag| uid_of(tag))?;
        let (namespace, name) = body.name.split_once('/').unwrap_or(("", &body.name));
        Some(Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid })
    })
}

/// Returns the sorted security groups that were set for the load balancer (`vip_sg_ids`). The groups of its port are not suitable, because
/// they include a group that Octavia created.
fn security_groups(body: &LoadBalancerBody) -> Vec<SecurityGroupId> {
    let mut groups = body.vip_sg_ids.clone();
    groups.sort_unstable();
    groups
}

/// Returns the narrowest filter that lists the listeners and pools of these load balancers, or `None` if there is no load balancer.
fn scope(bodies: &[LoadBalancerBody]) -> Option<Filter> {
    let projects: BTreeSet<&ProjectId> = bodies.iter().map(|body| &body.project_id).collect();
    let project = projects.first().filter(|_| projects.len() == 1).map(|id| (PROJECT, id.to_string()));
    let balancer = match bodies {
        [] => return None,
        [body] => Some(("loadbalancer_id", body.id.to_string())),
        _ => None,
    };
    Some(balancer.into_iter().chain(project).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(id: &str, project: &str) -> LoadBalancerBody {
        LoadBalancerBody { id: id.into(), project_id: project.into(), ..LoadBalancerBody::default() }
    }

    #[test]
    fn lists_are_filtered_by_load_balancer_and_project_where_there_is_one() {
        assert_eq!(scope(&[]), None);
        let one = vec![("loadbalancer_id", "a".to_owned()), ("project_id", "p".to_owned())];
        assert_eq!(scope(&[body("a", "p")]), Some(one));
        assert_eq!(scope(&[body("a", "p"), body("b", "p")]), Some(vec![("project_id", "p".to_owned())]));
        assert_eq!(scope(&[body("a", "p"), body("b", "q")]), Some(vec![]));
    }
}
