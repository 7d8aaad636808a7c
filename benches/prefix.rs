//! `cargo xtask bench prefix`: addresses of nodes. The time from a pod to its address, beside a bare PATCH; and the calls of the provider
//! for 1,000 nodes with 30 pods each, beside the least number that a search finds afterwards.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

#[path = "prefix/churn.rs"]
mod churn;
mod report;
#[path = "prefix/warm.rs"]
mod warm;

use report::publish;

fn main() {
    let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut rows = paused.expect("a runtime can be built").block_on(churn::measure());
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    rows.extend(runtime.block_on(warm::measure()));
    publish("prefix", &rows);
}
