//! The requests of drivers to external systems: the fence that stops them without leadership, their records and metrics, and the progress
//! of long lists.

mod fence;
mod listing_progress;
mod log;
mod observer;

pub use fence::Fence;
pub use listing_progress::{count_listed, page_listed};
pub use log::{LoggedRequest, RequestLog, RequestRecord};
pub use observer::{NoopRequestObserver, RequestObserver, RequestOutcome};
