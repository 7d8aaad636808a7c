//! The trait that defines what a warm pool contains: its unit of creation, its unit of use, and their order.

use std::fmt::Debug;
use std::time::Duration;

/// The contents of a warm pool, such as the ports of one node, or the addresses in the prefixes of one node.
///
/// A pool creates and deletes groups, and hands out items. If items are created one by one, each group consists of one item.
pub trait PoolKind: Sized + 'static {
    /// The unit of creation and deletion, for example a prefix of 16 addresses.
    type Group: Clone + Ord + Debug + Send + Sync;
    /// The unit that is handed out, for example one address. A group consists of items.
    type Item: Clone + Ord + Debug + Send + Sync;
    /// The configuration of a group that an owner requires, such as the security groups of a port. A group
    /// with another configuration can be changed to it.
    type Want: Clone + Ord + Default + Debug + Send + Sync;
    /// The owner of an item, for example a pod.
    type Owner: Clone + Ord + Debug + Send + Sync;
    /// The order of free items: the item with the lowest rank is handed out first, and of several such items the least one.
    type Rank: Ord;

    /// Returns the items of a group. The result never changes, is never empty, and no item is in two groups.
    fn items(group: &Self::Group) -> Vec<Self::Item>;

    /// Returns the group to which an item belongs.
    fn group(item: &Self::Item) -> Self::Group;

    /// Returns the rank of a free item.
    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank;
}

/// The properties of a free item that determine its rank.
pub struct Candidate<'c, K: PoolKind> {
    /// The group of the item.
    pub group: &'c K::Group,
    /// The number of free items in the group.
    pub free: usize,
    /// `true` if the group has the configuration that the owner requires.
    pub fits: bool,
    /// `true` if the item is ready for use at once.
    pub ready: bool,
    /// The time at which the item became free, on the clock of the pool.
    pub since: Duration,
}
