//! The results of calls of the provider, as the pools of a node take them.

use std::time::Duration;

use ipnet::Ipv4Net;
use staffetta_driver::prefix::BlockKind;
use staffetta_driver::{DriverError, Reason};
use staffetta_pool::{Grown, Shortfall};

use super::NodePool;

/// The maximum delay until a read of a network interface shows a change of it (the provider is eventually consistent).
pub(crate) const MAX_VISIBILITY_DELAY: Duration = Duration::from_secs(15);

/// The delay before an assignment whose effect is not known is repeated. In this time, a read of the interface usually shows the effect.
const REPEAT_AFTER_READ: Duration = MAX_VISIBILITY_DELAY.saturating_add(Duration::from_secs(5));

impl NodePool {
    /// Records the result of the assignment of `count` blocks with the id `op` ([`Action::Grow`](staffetta_pool::Action::Grow)):
    /// the new blocks `got`, and the error if there was one. The effect of a late or repeated result, and blocks of another kind than
    /// `kind`, are found by the next [`resync`](Self::resync).
    ///
    /// A provider assigns all blocks of a request or none. If it has fewer than requested, as many as the waiting pods need are requested
    /// next, and then one; this returns `true` if such a request is to follow at once. Each success doubles the limit again.
    pub fn assigned(
        &mut self,
        op: u64,
        kind: BlockKind,
        count: usize,
        mut got: Vec<Ipv4Net>,
        error: Option<&DriverError>,
        now: Duration,
    ) -> bool {
        got.retain(|block| BlockKind::of(*block) == Some(kind));
        self.unclear.retain(|block| !got.contains(block));
        let (pool, largest) = (&mut self.pools[kind as usize], &mut self.largest[kind as usize]);
        let is_too_many =
            error.is_some_and(|error| matches!(error.reason(), Reason::NoAddress | Reason::Quota));
        let is_repeated = is_too_many && got.is_empty() && count > 1;
        if is_repeated {
            let counts = pool.counts(now);
            let needed = counts.waiting.saturating_sub(counts.warm).div_ceil(kind.size());
            *largest = if needed < count { needed.max(1) } else { 1 };
        } else if !got.is_empty() {
            *largest = largest.saturating_mul(2);
        }
        let is_recorded = pool.grown(op, Grown { got, rest: 0, shortfall: error.map(shortfall) }, now);
        if is_recorded && is_repeated {
            pool.end_backoff();
        }
        self.place();
        is_recorded && is_repeated
    }

    /// Records the result of the removal of `blocks` with the id `op` ([`Action::Shrink`](staffetta_pool::Action::Shrink)), and the
    /// error if it failed. Blocks whose removal was refused are free again; if the effect of this or an earlier attempt is not known, the next
    /// [`resync`](Self::resync) shows it. A late or repeated result changes nothing.
    pub fn unassigned(
        &mut self,
        op: u64,
        kind: BlockKind,
        blocks: &[Ipv4Net],
        error: Option<&DriverError>,
        now: Duration,
    ) {
        let pool = &mut self.pools[kind as usize];
        let Some(error) = error else {
            if pool.shrunk(op, &[], now) {
                self.unclear.retain(|block| !blocks.contains(block));
            }
            return;
        };
        if pool.shrunk(op, blocks, now) {
            if error.ambiguous() {
                self.unclear.extend(blocks);
            } else {
                // An earlier attempt may have removed the others.
                pool.keep(blocks.iter().filter(|block| !self.unclear.contains(block)), now);
            }
        }
    }
}

/// Converts an error of the provider to the [`Shortfall`] by which a pool backs off. An assignment whose effect is not known is repeated
/// after a delay in which a read usually shows its effect.
fn shortfall(error: &DriverError) -> Shortfall {
    match (error.reason(), error.retry_after()) {
        (Reason::NoAddress, _) => Shortfall::Exhausted,
        (_, wait) if error.ambiguous() => {
            Shortfall::Throttled(REPEAT_AFTER_READ.max(wait.unwrap_or_default()))
        }
        (Reason::Unavailable, Some(wait)) => Shortfall::Throttled(wait),
        _ => Shortfall::Failed,
    }
}
