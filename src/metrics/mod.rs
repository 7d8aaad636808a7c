//! What the program tells of itself in figures. What follows from how things are is read when somebody asks; the rest is
//! counted.

mod cloud_requests;
mod counted;
pub mod counter;
mod exposition;
mod figures;
pub mod histogram;
mod names;
mod page;
mod pools;
mod process;
mod queue_meter;
mod requests;
mod shard;
mod sweeps;
mod virtual_nodes;

pub(crate) use cloud_requests::CloudRequests;
pub(crate) use counted::Counted;
pub(crate) use figures::Figures;
pub(crate) use page::page;
pub(crate) use pools::Pools;
pub use queue_meter::QueueMeter;
pub(crate) use requests::Requests;
pub(crate) use sweeps::Sweeps;
