//! The common part of the drivers of the simulated cloud: access for one cluster, planned faults and a log of calls.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

use crate::{Faults, MemoryNetwork, MemoryServices};
use parking_lot::Mutex;
use staffetta_driver::{ClusterId, DriverError};

/// The maximum number of logged calls, which limits the memory that a long run needs.
const MAX_CALLS: usize = 10_000;

/// Defines the methods of a driver, for planned faults, and its logged calls: each call is a method with its arguments.
macro_rules! driver_calls {
    (
        $(#[$method_doc:meta])* $method:ident,
        $(#[$call_doc:meta])* $call:ident,
        $($(#[$doc:meta])* $name:ident $(($($argument:ty),+))?;)+
    ) => {
        $(#[$method_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $method { $($(#[$doc])* $name,)+ }

        $(#[$call_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $call { $($(#[$doc])* $name $(($($argument),+))?,)+ }

        impl From<&$call> for $method {
            fn from(call: &$call) -> Self {
                match call {
                    $($call::$name { .. } => Self::$name,)+
                }
            }
        }
    };
}
pub(crate) use driver_calls;

/// A driver of one cluster for the part `W` of the simulated cloud. `M` is the type of its methods, for planned faults, and `C` is the type
/// of its logged calls.
pub struct MemoryDriver<W, M, C> {
    /// The part of the simulated cloud: its network, or its services.
    pub(crate) world: Arc<W>,
    /// The cluster in the ownership marks of created resources.
    pub(crate) cluster: ClusterId,
    /// The planned faults and the log of calls of the driver.
    pub(crate) calls: Calls<M, C>,
}

impl<W, M: for<'a> From<&'a C> + Copy + Eq + Hash, C: Clone> MemoryDriver<W, M, C> {
    /// Creates a driver of `world`. The resources that it creates carry the ownership mark of `cluster`.
    pub fn new(world: Arc<W>, cluster: ClusterId) -> Self {
        Self { world, cluster, calls: Calls::default() }
    }

    /// Returns the faults that are planned for later calls of this driver. [`Faults::inject`] adds others.
    pub fn faults(&self) -> &Faults<M> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<C> {
        self.calls.log()
    }
}

impl<M, C> MemoryDriver<MemoryNetwork, M, C> {
    /// Returns the simulated network.
    pub fn network(&self) -> &Arc<MemoryNetwork> {
        &self.world
    }
}

impl<M, C> MemoryDriver<MemoryServices, M, C> {
    /// Returns the simulated load balancers and public addresses.
    pub fn services(&self) -> &Arc<MemoryServices> {
        &self.world
    }
}

/// The planned faults of a driver, and a log of its last calls.
pub(crate) struct Calls<M, C> {
    /// The faults that are planned for later calls.
    pub(crate) faults: Faults<M>,
    log: Mutex<VecDeque<C>>,
}

impl<M, C> Default for Calls<M, C> {
    fn default() -> Self {
        Self { faults: Faults::default(), log: Mutex::default() }
    }
}

impl<M: for<'a> From<&'a C> + Copy + Eq + Hash, C: Clone> Calls<M, C> {
    /// Logs a call and executes `work`, with the fault that is planned for its method, if there is one.
    pub(crate) async fn call<T>(
        &self,
        call: C,
        work: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let method = M::from(&call);
        self.record(call);
        self.faults.call(method, work).await
    }
}

impl<M, C: Clone> Calls<M, C> {
    /// Appends a call to the log, which drops its oldest call if it is full.
    pub(crate) fn record(&self, call: C) {
        let mut log = self.log.lock();
        if log.len() == MAX_CALLS {
            log.pop_front();
        }
        log.push_back(call);
    }

    /// Returns the logged calls, oldest first.
    pub(crate) fn log(&self) -> Vec<C> {
        self.log.lock().iter().cloned().collect()
    }
}
