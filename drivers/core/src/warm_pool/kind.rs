//! What a warm pool is filled with.

use std::fmt::Debug;
use std::time::Duration;

/// What a warm pool is filled with: ports of one node, addresses of one node's prefixes.
///
/// A pool grows and shrinks by groups and hands out items. Where the other world makes items one by one, a group is its
/// item.
pub trait Kind: Sized + 'static {
    /// What the items of one pool have in common.
    type Key: Clone + Ord + Debug + Send + Sync;
    /// What is made and destroyed as a whole.
    type Group: Clone + Ord + Debug + Send + Sync;
    /// What is handed out.
    type Item: Clone + Ord + Debug + Send + Sync;
    /// How a group has to be for who takes an item of it. A group that is not so can be adapted.
    type Want: Clone + Ord + Default + Debug + Send + Sync;
    /// Who takes an item.
    type Owner: Clone + Ord + Debug + Send + Sync;
    /// Which of several free items is handed out: that of the least rank, and of those the least one.
    type Rank: Ord;

    /// The items of a group: always the same ones, and none of them in another group. Never empty.
    fn items(group: &Self::Group) -> Vec<Self::Item>;

    /// The rank of a free item.
    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank;
}

/// A free item, as its rank depends on it.
pub struct Candidate<'c, K: Kind> {
    /// Its group.
    pub group: &'c K::Group,
    /// How many items of the group are free.
    pub free: usize,
    /// Whether the group is as it is wanted.
    pub fits: bool,
    /// Whether it was found to be ready for use at once.
    pub ready: bool,
    /// Since when the item is free.
    pub since: Duration,
}
