//! A cache of the owners of load balancers and of the members of pools, so that this process need not read them again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use dashmap::{DashMap, DashSet};
use parking_lot::Mutex;
use staffetta_driver::{LoadBalancerId, Member, MemberId, PoolId, Uid};

/// The owners of load balancers and the members of pools that this process has read or written.
#[derive(Debug, Default)]
pub(super) struct LoadBalancerCache {
    /// The UID of the owner of each load balancer. It never changes; only a load balancer without an owner may get one.
    pub(super) owners: ResourceIndex<LoadBalancerId, Uid>,
    /// The owners for which a load balancer may exist that is not in `owners`, because the response to its creation was lost.
    pub(super) dirty: DashSet<Uid>,
    /// The members of pools. The address, port and subnet of a member never change, so an entry is valid as long as the pool has members
    /// with the same ids.
    pub(super) members: DashMap<PoolId, Vec<Member>>,
}

impl LoadBalancerCache {
    /// Returns `true` if no load balancer can exist for the owner with this UID.
    pub(super) fn has_none(&self, uid: &Uid) -> bool {
        self.owners.is_complete() && !self.dirty.contains(uid) && !self.owners.contains_value(uid)
    }

    /// Records the end of a full list of load balancers, for which [`ResourceIndex::start_list`] returned the number `list`, and removes
    /// the entries of load balancers and pools that the list lacks.
    pub(super) fn end_list<'a>(
        &self,
        list: u64,
        balancers: impl Iterator<Item = &'a LoadBalancerId>,
        pools: impl Iterator<Item = &'a PoolId>,
    ) {
        let (balancers, pools): (HashSet<_>, HashSet<_>) = (balancers.collect(), pools.collect());
        self.owners.end_list(list, |id| balancers.contains(id));
        self.members.retain(|id, _| pools.contains(id));
    }

    /// Returns the cached members of a pool whose members have these ids, in any order. Returns `None` if the cache does not have exactly
    /// these members, so that they must be read.
    pub(super) fn current_members<'a>(
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
}

/// A map of the existing resources, as far as this process knows. A list of all resources that was read from the service removes the
/// entries that it lacks, except those that were added while the list was being read.
#[derive(Debug)]
pub(super) struct ResourceIndex<K, V>(Mutex<ResourceIndexState<K, V>>);

/// The entries of a [`ResourceIndex`], and the full lists that were started so far.
#[derive(Debug)]
struct ResourceIndexState<K, V> {
    /// `true` if a list of all resources has been read, so that a resource without an entry does not exist.
    complete: bool,
    /// The number of lists of all resources that have been started.
    lists: u64,
    /// The resources, each with the number of full lists that had been started when it was added.
    resources: HashMap<K, (V, u64)>,
}

impl<K, V> Default for ResourceIndex<K, V> {
    fn default() -> Self {
        Self(Mutex::new(ResourceIndexState { complete: false, lists: 0, resources: HashMap::new() }))
    }
}

impl<K: Eq + Hash, V: Clone + PartialEq> ResourceIndex<K, V> {
    /// Records the start of a full list, and returns its number for [`end_list`](Self::end_list).
    pub(super) fn start_list(&self) -> u64 {
        let mut state = self.0.lock();
        state.lists += 1;
        state.lists
    }

    /// Records the end of the full list with the number `list`. Keeps the entries for which `exists` returns `true`, and those that were
    /// added since the list was started.
    pub(super) fn end_list(&self, list: u64, exists: impl Fn(&K) -> bool) {
        let mut state = self.0.lock();
        state.resources.retain(|key, (_, added)| *added >= list || exists(key));
        state.complete = true;
    }

    /// Returns `true` if a full list has ended, so that a resource without an entry does not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.0.lock().complete
    }

    /// Adds or replaces an entry. Full lists in progress do not remove it.
    pub(super) fn insert(&self, key: K, value: V) {
        let mut state = self.0.lock();
        let lists = state.lists;
        state.resources.insert(key, (value, lists));
    }

    /// Removes the entry of a resource that was deleted.
    pub(super) fn remove(&self, key: &K) {
        self.0.lock().resources.remove(key);
    }

    /// Returns the value of a resource, or `None` if it has no entry.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0.lock().resources.get(key).map(|(value, _)| value.clone())
    }

    /// Returns `true` if any resource has this value.
    pub(super) fn contains_value(&self, value: &V) -> bool {
        self.0.lock().resources.values().any(|(known, _)| known == value)
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
    fn an_owner_has_no_load_balancer_after_a_full_list_and_while_it_is_not_dirty() {
        let (cache, web) = (LoadBalancerCache::default(), Uid::from("web"));
        let other = LoadBalancerId::from("other");
        let list = || cache.owners.start_list();
        assert!(!cache.has_none(&web), "nothing was listed");
        cache.end_list(list(), [].into_iter(), [].into_iter());
        assert!(cache.has_none(&web));
        cache.dirty.insert(web.clone());
        assert!(!cache.has_none(&web) && cache.has_none(&"other".into()));
        cache.dirty.remove(&web);
        cache.owners.insert("lb".into(), web.clone());
        assert!(!cache.has_none(&web));
        cache.owners.remove(&"lb".into());
        assert!(cache.has_none(&web));
        let started = list();
        cache.owners.insert("lb".into(), web.clone());
        cache.end_list(started, [&other].into_iter(), [].into_iter());
        assert!(!cache.has_none(&web), "it was created while the others were listed");
        cache.end_list(list(), [&other].into_iter(), [].into_iter());
        assert!(cache.has_none(&web), "it was deleted");
    }

    #[test]
    fn cached_members_are_valid_while_the_pool_has_members_with_the_same_ids() {
        let (cache, pool) = (LoadBalancerCache::default(), PoolId::from("pool"));
        let ids = |ids: &[&str]| ids.iter().map(|id| MemberId::from(*id)).collect::<Vec<_>>();
        assert_eq!(cache.current_members(&pool, ids(&["a"]).iter()), None);
        assert_eq!(cache.current_members(&pool, ids(&[]).iter()), Some(vec![]));
        cache.members.insert(pool.clone(), vec![member("a"), member("b")]);
        assert_eq!(cache.current_members(&pool, ids(&["b", "a"]).iter()).map(|found| found.len()), Some(2));
        for others in [&["a"][..], &["a", "b", "c"], &["a", "c"]] {
            assert_eq!(cache.current_members(&pool, ids(others).iter()), None, "{others:?}");
        }
        cache.members.remove(&pool);
        assert_eq!(cache.current_members(&pool, ids(&["a", "b"]).iter()), None);
    }

    #[test]
    fn a_full_list_removes_what_it_lacks_except_what_was_added_meanwhile() {
        let index = ResourceIndex::default();
        assert!(!index.is_complete());
        index.insert("gone", ());
        index.insert("stays", ());
        let list = index.start_list();
        index.insert("added meanwhile", ());
        index.end_list(list, |key| *key == "stays");
        let known = ["gone", "stays", "added meanwhile"].map(|key| index.get(&key).is_some());
        assert_eq!((known, index.is_complete()), ([false, true, true], true));
        index.end_list(index.start_list(), |_| false);
        assert!(index.get(&"added meanwhile").is_none(), "it was deleted");
    }
}
