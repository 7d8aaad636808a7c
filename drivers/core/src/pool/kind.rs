//! The type parameter of a warm pool.

use std::fmt::Debug;
use std::time::Duration;

/// The contents of a warm pool: ports of one node, addresses of one node's prefixes.
///
/// A pool grows and shrinks by groups and hands out items. Where items are created one by one, a group is its item.
pub trait Kind: Sized + 'static {
    /// The unit of creation and deletion.
    type Group: Clone + Ord + Debug + Send + Sync;
    /// The unit that is handed out.
    type Item: Clone + Ord + Debug + Send + Sync;
    /// The configuration that an owner requires of a group. A group with a different configuration can be adapted.
    type Want: Clone + Ord + Default + Debug + Send + Sync;
    /// The owner of an item.
    type Owner: Clone + Ord + Debug + Send + Sync;
    /// The order of free items: the one with the least rank, then the least one, is handed out first.
    type Rank: Ord;

    /// Returns the items of a group: always the same ones, and none of them in another group. Never empty.
    fn items(group: &Self::Group) -> Vec<Self::Item>;

    /// Returns the group of an item.
    fn group(item: &Self::Item) -> Self::Group;

    /// Returns the rank of a free item.
    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank;
}

/// A free item, as its rank depends on it.
pub struct Candidate<'c, K: Kind> {
    /// Its group.
    pub group: &'c K::Group,
    /// The number of free items of the group.
    pub free: usize,
    /// `true` if the group has the required configuration.
    pub fits: bool,
    /// `true` if it is ready for use at once.
    pub ready: bool,
    /// The time at which the item became free.
    pub since: Duration,
}
