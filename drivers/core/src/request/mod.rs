//! The requests of drivers to external systems: the fence that stops them without leadership, their records and metrics, and the progress
//! of long lists.

mod fence;
mod listing_progress;
mod log;
mod observer;

pub use fence::*;
pub use listing_progress::*;
pub use log::*;
pub use observer::*;
