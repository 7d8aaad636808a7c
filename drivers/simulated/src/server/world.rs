//! The network itself: what exists in it, what goes wrong in it, and what took effect.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use staffetta_driver::memory::{Fault, Faults, MemoryNetwork, MemoryOptions, MemoryServices};
use staffetta_driver::{DriverError, LoadBalancer, Marked, PublicIp};
use tokio::time::Instant;

use super::book::Book;
use super::desk::{Answer, Caller, Desk};
use crate::method::Method;
use crate::wire::{NetworkPort, Page};

/// The network.
pub(super) struct World {
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    faults: Faults<Method>,
    /// One call at a time is at work, so that the order of the entries is that of the effects.
    book: Mutex<Book>,
}

impl World {
    /// An empty network.
    pub(super) fn new(options: MemoryOptions, remembered: NonZeroUsize) -> Self {
        Self {
            network: Arc::new(MemoryNetwork::new(options.clone())),
            services: Arc::new(MemoryServices::new(options)),
            faults: Faults::default(),
            book: Mutex::new(Book::new(remembered)),
        }
    }

    /// Answers a call, with the fault that waits for it. The work and its entry are one: whenever the caller goes away,
    /// either both were done or neither.
    pub(super) async fn answer<C: Answer>(&self, caller: &Caller, call: C) -> Result<C::Answer, DriverError> {
        let work = || {
            let mut book = self.book();
            call.answer(&mut Desk::new(&self.network, &self.services, &mut book, caller))
        };
        self.faults.call(caller.method, work).await
    }

    /// The next `times` calls of `method` that have no fault yet get this one.
    pub(super) fn inject(&self, method: Method, times: usize, fault: Fault) {
        self.faults.inject(method, times, fault);
    }

    /// Takes back the faults that no call has met yet.
    pub(super) fn clear_faults(&self) {
        self.faults.clear();
    }

    /// The entries behind number `after`, as many as one answer holds.
    pub(super) fn ledger(&self, after: u64) -> Page {
        self.book().page(after)
    }

    /// The ports that exist.
    pub(super) fn ports(&self) -> Vec<NetworkPort> {
        let now = Instant::now();
        let as_they_are = self.network.ports().into_iter().map(|port| NetworkPort {
            vif: port.vif_at(now),
            cluster: port.cluster,
            owner: port.owner,
            node_name: port.node_name,
            project: port.project,
            security_groups: port.security_groups,
        });
        as_they_are.collect()
    }

    /// The load balancers that exist.
    pub(super) fn load_balancers(&self) -> Vec<Marked<LoadBalancer>> {
        let marked = self.services.load_balancers().into_iter();
        marked.map(|(owner, thing)| Marked { owner, thing }).collect()
    }

    /// The public addresses that are in use.
    pub(super) fn public_ips(&self) -> Vec<Marked<PublicIp>> {
        let marked = self.services.public_ips().into_iter();
        marked.map(|(owner, thing)| Marked { owner, thing }).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
