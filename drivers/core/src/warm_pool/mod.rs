//! Keeps things ready before they are asked for: ports, addresses, anything that takes long to make.
//!
//! A [`WarmPool`] is a state machine. It is told what happens and what time it is; it answers whom it gives what, and what
//! it wants done ([`Action`]). It makes no call, keeps no clock and waits for nothing, so that whoever drives it holds its
//! lock only for as long as a decision takes. What it is filled with is a [`Kind`], how large it is to be a [`Policy`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use staffetta_driver::warm_pool::{Action, Candidate, Grown, Kind, MinMaxBatch, Take, Wait, WarmPool};
//!
//! /// Ports, known by their numbers.
//! struct Ports;
//!
//! impl Kind for Ports {
//!     type Key = ();
//!     type Group = u32;
//!     type Item = u32;
//!     type Want = ();
//!     type Owner = &'static str;
//!     type Rank = Duration;
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
//! pool.grown(1, Grown { got: vec![7, 8], fault: None }, now);
//! assert_eq!(pool.take(&"web", &(), now), Take::Got(7));
//! pool.give_back(&"web", &7, now);
//! assert_eq!(pool.take(&"db", &(), now), Take::Got(8));
//! assert_eq!(pool.take(&"web", &(), now + cool_down), Take::Got(7));
//! ```

mod demand;
mod fault;
mod kind;
mod plan;
mod policy;
mod pool;
mod recovery;

pub(crate) use fault::Pressure;
pub use fault::{Fault, Grown};
pub use kind::{Candidate, Kind};
pub use plan::Action;
pub use policy::{Counts, MinMaxBatch, Plan, Policy};
pub use pool::{Take, Wait, WarmPool};
pub use recovery::{Adopted, Drift, Epoch, Told};

#[cfg(test)]
mod tests;
