//! VIF pools, which keep VIFs ready in front of a VIF driver.

mod bulk;
mod driver;
mod multi;
mod nodes;
mod noop;
mod warm;

pub use self::bulk::{BulkVifDriver, BulkVifRequest, BulkVifResult, PooledVif, PooledVifList, VifPoolKey};
pub use self::driver::{PoolClaim, VifPoolDriver, VifPoolObserver};
pub use self::multi::MultiVifPool;
pub(crate) use self::nodes::NodeIndex;
pub use self::nodes::NodeInfo;
pub use self::noop::NoopVifPool;
pub use self::warm::{IsLeader, VifPoolMetrics, VifPoolPolicy, WarmVifPool};
