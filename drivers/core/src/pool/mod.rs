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
//! use staffetta_driver::pool::{Action, Candidate, Grown, PoolKind, MinMaxBatch, Take, Wait, WarmPool};
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
mod kind;
mod plan;
mod policy;
mod recovery;
mod warm_pool;

pub(crate) use attempt::AttemptBackoff;
pub use attempt::{Grown, Shortfall};
pub use kind::{Candidate, PoolKind};
pub use plan::Action;
pub use policy::{MinMaxBatch, PoolCounts, SizeChange, SizePolicy};
pub use recovery::{Adopted, Drift, Epoch, Existing};
pub use warm_pool::{Take, Wait, WarmPool};

#[cfg(test)]
mod tests;
