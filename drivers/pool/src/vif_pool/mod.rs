//! The VIF pools: implementations of [`VifPoolDriver`](staffetta_driver::VifPoolDriver) that keep VIFs ready, or none.

mod multi;
mod nodes;
mod noop;
mod warm;

pub use self::multi::MultiVifPool;
pub(crate) use self::nodes::NodeIndex;
pub use self::noop::NoopVifPool;
pub use self::warm::{IsLeader, VifPoolMetrics, VifPoolPolicy, WarmVifPool};
