//! The common part of the drivers in memory: a cluster's access to a simulated world, with faults and a log of calls.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::{Faults, MemoryNetwork, MemoryServices};
use staffetta_driver::{ClusterId, DriverError};

/// The maximum number of logged calls, which bounds the memory of a long run.
const MAX_CALLS: usize = 10_000;

/// A driver in memory: the access of one cluster to the world `W`. `M` are its methods, `C` its calls.
pub struct MemoryDriver<W, M, C> {
    pub(crate) world: Arc<W>,
    pub(crate) cluster: ClusterId,
    pub(crate) calls: Calls<M, C>,
}

impl<W, M: Copy + Eq + Hash, C: Clone> MemoryDriver<W, M, C> {
    /// Creates a driver of `world`, whose resources carry the mark of `cluster`.
    pub fn new(world: Arc<W>, cluster: ClusterId) -> Self {
        Self { world, cluster, calls: Calls::default() }
    }

    /// Returns the faults of the next calls.
    pub fn faults(&self) -> &Faults<M> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<C> {
        self.calls.log()
    }
}

impl<M, C> MemoryDriver<MemoryNetwork, M, C> {
    /// Returns the network.
    pub fn network(&self) -> &Arc<MemoryNetwork> {
        &self.world
    }
}

impl<M, C> MemoryDriver<MemoryServices, M, C> {
    /// Returns the load balancers and public addresses.
    pub fn services(&self) -> &Arc<MemoryServices> {
        &self.world
    }
}

/// The faults and the last calls of a driver.
pub(crate) struct Calls<M, C> {
    pub(crate) faults: Faults<M>,
    log: Mutex<VecDeque<C>>,
}

impl<M, C> Default for Calls<M, C> {
    fn default() -> Self {
        Self { faults: Faults::default(), log: Mutex::default() }
    }
}

impl<M: Copy + Eq + Hash, C: Clone> Calls<M, C> {
    /// Logs a call and executes `work`, with the fault that is planned for `method`.
    pub(crate) async fn call<T>(
        &self,
        method: M,
        call: C,
        work: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.record(call);
        self.faults.call(method, work).await
    }

    /// Logs a call.
    pub(crate) fn record(&self, call: C) {
        let mut log = lock(&self.log);
        if log.len() == MAX_CALLS {
            log.pop_front();
        }
        log.push_back(call);
    }

    /// Returns the logged calls, oldest first.
    pub(crate) fn log(&self) -> Vec<C> {
        lock(&self.log).iter().cloned().collect()
    }
}
