//! What this process knows of load balancers, so that it need not ask.

use std::collections::{BTreeSet, HashSet};

use dashmap::{DashMap, DashSet};
use staffetta_driver::{LoadBalancerId, Member, MemberId, PoolId, Uid};

use super::inventory::Inventory;

/// What this process knows of load balancers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Who owns a load balancer, which never changes but from nobody to one.
    owners: Inventory<LoadBalancerId, Uid>,
    /// For whom one may have been made without our knowing.
    doubts: DashSet<Uid>,
    /// What was asked to go, and is not gone yet.
    going: DashSet<LoadBalancerId>,
    /// The members of pools. They are where they were as long as a pool has members with the same ids: the address, the port
    /// and the subnet of a member never change. What else can be changed of it, no list tells.
    members: DashMap<PoolId, Vec<Member>>,
}

impl Memory {
    /// Whether nothing can stand for that owner.
    pub(super) fn has_none(&self, uid: &Uid) -> bool {
        self.owners.is_complete() && !self.doubts.contains(uid) && !self.owners.has(uid)
    }

    /// One may stand for that owner, and nobody knows.
    pub(super) fn doubt(&self, uid: &Uid) {
        self.doubts.insert(uid.clone());
    }

    /// What stands for that owner was read.
    pub(super) fn looked(&self, uid: &Uid) {
        self.doubts.remove(uid);
    }

    /// A look at all begins. The answer is its number.
    pub(super) fn look(&self) -> u64 {
        self.owners.look()
    }

    /// The look of that number is over: these stand, with these pools, and whatever was made since it began.
    pub(super) fn listed<'a>(
        &self,
        look: u64,
        standing: impl Iterator<Item = &'a LoadBalancerId>,
        pools: impl Iterator<Item = &'a PoolId>,
    ) {
        let (standing, pools): (HashSet<_>, HashSet<_>) = (standing.collect(), pools.collect());
        self.owners.listed(look, |id| standing.contains(id));
        self.members.retain(|id, _| pools.contains(id));
    }

    /// That owner has this load balancer.
    pub(super) fn owns(&self, uid: &Uid, id: &LoadBalancerId) {
        self.owners.insert(id.clone(), uid.clone());
    }

    /// Who has a load balancer, if that was seen.
    pub(super) fn owner(&self, id: &LoadBalancerId) -> Option<Uid> {
        self.owners.get(id)
    }

    /// A load balancer is gone.
    pub(super) fn forget(&self, id: &LoadBalancerId) {
        self.owners.remove(id);
        self.going.remove(id);
    }

    /// A load balancer was asked to go.
    pub(super) fn goes(&self, id: &LoadBalancerId) {
        self.going.insert(id.clone());
    }

    /// A load balancer that was asked to go stays.
    pub(super) fn stays(&self, id: &LoadBalancerId) {
        self.going.remove(id);
    }

    /// Whether a load balancer was asked to go, and nobody saw it gone.
    pub(super) fn is_going(&self, id: &LoadBalancerId) -> bool {
        self.going.contains(id)
    }

    /// The members of a pool that has members with these ids, in any order; none when they must be read.
    pub(super) fn members<'a>(
        &self,
        pool: &PoolId,
        ids: impl Iterator<Item = &'a MemberId>,
    ) -> Option<Vec<Member>> {
        let ids: BTreeSet<_> = ids.collect();
        if ids.is_empty() {
            return Some(Vec::new());
        }
        let known = self.members.get(pool)?;
        let same = known.iter().map(|member| &member.id).collect::<BTreeSet<_>>() == ids;
        same.then(|| known.clone())
    }

    /// The members that a pool had when they were read last.
    pub(super) fn last_members(&self, pool: &PoolId) -> Option<Vec<Member>> {
        self.members.get(pool).map(|known| known.clone())
    }

    /// A pool has these members.
    pub(super) fn remember(&self, pool: &PoolId, members: &[Member]) {
        self.members.insert(pool.clone(), members.to_vec());
    }

    /// Nobody knows which members a pool has.
    pub(super) fn forget_members(&self, pool: &PoolId) {
        self.members.remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::MemberSpec;

    use super::*;

    fn member(id: &str) -> Member {
        let spec = MemberSpec { ip: [10, 0, 0, 1].into(), port: 80, name: "a".into(), subnet: "s".into() };
        Member { id: id.into(), spec }
    }

    #[test]
    fn that_nothing_stands_is_known_after_a_look_at_all_and_as_long_as_there_is_no_doubt() {
        let (memory, web) = (Memory::default(), Uid::from("web"));
        assert!(!memory.has_none(&web), "nobody looked");
        memory.listed(memory.look(), [].into_iter(), [].into_iter());
        assert!(memory.has_none(&web));
        memory.doubt(&web);
        assert!(!memory.has_none(&web) && memory.has_none(&"other".into()));
        memory.looked(&web);
        memory.owns(&web, &"lb".into());
        assert!(!memory.has_none(&web));
        memory.forget(&"lb".into());
        assert!(memory.has_none(&web));
        let look = memory.look();
        memory.owns(&web, &"lb".into());
        memory.listed(look, [LoadBalancerId::from("other")].iter(), [].into_iter());
        assert!(!memory.has_none(&web), "it was made while the others were listed");
        memory.listed(memory.look(), [LoadBalancerId::from("other")].iter(), [].into_iter());
        assert!(memory.has_none(&web), "somebody removed it");
    }

    #[test]
    fn members_are_as_remembered_as_long_as_they_have_the_same_ids() {
        let (memory, pool) = (Memory::default(), PoolId::from("pool"));
        let ids = |ids: &[&str]| ids.iter().map(|id| MemberId::from(*id)).collect::<Vec<_>>();
        assert_eq!(memory.members(&pool, ids(&["a"]).iter()), None);
        assert_eq!(memory.members(&pool, ids(&[]).iter()), Some(vec![]));
        memory.remember(&pool, &[member("a"), member("b")]);
        assert_eq!(memory.members(&pool, ids(&["b", "a"]).iter()).map(|found| found.len()), Some(2));
        for others in [&["a"][..], &["a", "b", "c"], &["a", "c"]] {
            assert_eq!(memory.members(&pool, ids(others).iter()), None, "{others:?}");
        }
        memory.forget_members(&pool);
        assert_eq!(memory.members(&pool, ids(&["a", "b"]).iter()), None);
    }
}
