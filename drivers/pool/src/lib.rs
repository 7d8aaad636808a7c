//! Warm pools: they keep resources ready that take long to create, and hand them out at once.
//!
//! | module | contents |
//! |---|---|
//! | `pool` | [`WarmPool`], a state machine for resources of any kind. It is told the time and the results of calls, and does no I/O |
//! | `vif_pool` | the VIF pools: [`WarmVifPool`] executes the decisions of a [`WarmPool`] of VIFs, [`NoopVifPool`] keeps no VIFs ready, and [`MultiVifPool`] combines the pools of several VIF drivers |
//!
//! A VIF pool is a [`VifPoolDriver`](staffetta_driver::VifPoolDriver). It creates and deletes VIFs by a
//! [`BulkVifDriver`](staffetta_driver::BulkVifDriver), the driver of a cloud.

mod pool;
mod vif_pool;

pub use pool::{
    Action, Adopted, Candidate, Drift, Epoch, Existing, Grown, MinMaxBatch, PoolCounts, PoolKind, Shortfall,
    SizeChange, SizePolicy, Take, Wait, WarmPool,
};
pub use vif_pool::{IsLeader, MultiVifPool, NoopVifPool, VifPoolMetrics, VifPoolPolicy, WarmVifPool};
