//! Polls the status of ports and load balancers. One request reads the status of all resources for which
//! callers wait.

mod coalescer;
mod poller;
mod schedule;

pub(crate) use self::coalescer::Coalescer;
pub(crate) use self::poller::Poller;
#[cfg(test)]
pub(crate) use self::schedule::PollSchedule;
pub(crate) use self::schedule::{MAX_INTERVAL, Pacing, PollEntry, PollState};
