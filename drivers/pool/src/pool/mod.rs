//! A warm pool: it keeps resources ready before they are requested, such as ports, addresses, or anything that takes long to
//! create.
//!
//! A [`WarmPool`] is a state machine without I/O and without a clock. Its methods receive the current time and the results of
//! calls, hand out items, and return the next [`Action`]. The caller executes the actions, and needs to lock the pool only for
//! the short time of a decision. A [`PoolKind`] defines the contents of a pool, a [`SizePolicy`] its size.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use staffetta_pool::{Action, Candidate, Grown, PoolKind, MinMaxBatch, Take, Wait, WarmPool};
//!
//! /// Ports, known by their numbers.
//! struct Ports;
//!
//! impl PoolKind for Ports {
//!     type Group = u32;
//!     type Item = u32;
//!     type Want = ();
//!     type Owner = &'static str;
//!     type Rank = Duration;
//!     fn group(port: &u32) -> u32 {
//!         *port
//!     }
//!     fn items(port: &u32) -> Vec<u32> {
//!         vec![*port]
//!     }
//!     fn rank(candidate: &Candidate<'_, Self>) -> Duration {
//!         candidate.since
//!     }
//! }
//!
//! let policy = MinMaxBatch { min: 1, max: 0, batch: 2, cap_groups: None };
//! let (mut pool, cool_down) = (WarmPool::<Ports>::new(Arc::new(policy), Duration::from_secs(20)), Duration::from_secs(20));
//! let now = Duration::ZERO;
//! assert_eq!(pool.take(&"web", &(), now), Take::Wait(Wait::Growing));
//! assert_eq!(pool.plan(now), Some(Action::Grow { op: 1, count: 2, want: () }));
//! pool.grown(1, Grown { got: vec![7, 8], rest: 0, shortfall: None }, now);
//! assert_eq!(pool.take(&"web", &(), now), Take::Got(7));
//! pool.give_back(&"web", &7, now);
//! assert_eq!(pool.take(&"db", &(), now), Take::Got(8));
//! assert_eq!(pool.take(&"web", &(), now + cool_down), Take::Got(7));
//! ```

mod attempt;
mod demand;
mod plan;
mod policy;
mod recovery;
mod warm_pool;

use std::fmt::Debug;
use std::time::Duration;

pub(crate) use attempt::AttemptBackoff;
pub use attempt::{Grown, Shortfall};
pub use plan::Action;
pub use policy::{MinMaxBatch, PoolCounts, SizeChange, SizePolicy};
pub use recovery::{Adopted, Drift, Epoch, Existing};
pub use warm_pool::{Take, Wait, WarmPool};

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

    /// Returns the rank of a free item: the item with the lowest rank is handed out first.
    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank;
}

/// The properties of a free item that determine its rank.
pub struct Candidate<'c, K: PoolKind> {
    /// The group of the item: the pool creates and deletes the items of a group together.
    pub group: &'c K::Group,
    /// The number of free items in the group of this item, including this one.
    pub free: usize,
    /// `true` if the group has the configuration that the owner requires.
    pub fits: bool,
    /// `true` if an owner can use the item at once, as with an active VIF. Other items can be handed out, too; the owner then waits.
    pub ready: bool,
    /// The time at which the item became free, on the clock of the pool.
    pub since: Duration,
}

#[cfg(test)]
mod tests;
