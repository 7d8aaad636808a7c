//! Where one call is worked on: it sees the drivers in memory, and what it did is entered in the book.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use jiff::Timestamp;
use staffetta_driver::memory::{
    MemoryLoadBalancerDriver, MemoryNetwork, MemoryPublicIpDriver, MemoryServices, MemoryVifDriver,
};
use staffetta_driver::{ClusterId, DriverError, LoadBalancer, Marked, PublicIp, Vif};

use super::book::Book;
use crate::ledger::{Effect, Entry, Kind};
use crate::method::Method;
use crate::wire::Call;

/// A call that the network answers.
pub(super) trait Answer: Call {
    /// Does what is asked.
    fn answer(self, desk: &mut Desk<'_>) -> Result<Self::Answer, DriverError>;
}

/// Who calls what.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) method: Method,
    pub(super) cluster: ClusterId,
    pub(super) request_id: Option<String>,
}

/// Where one call is worked on.
pub(super) struct Desk<'a> {
    pub(super) network: &'a Arc<MemoryNetwork>,
    pub(super) services: &'a Arc<MemoryServices>,
    book: &'a mut Book,
    caller: &'a Caller,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        network: &'a Arc<MemoryNetwork>,
        services: &'a Arc<MemoryServices>,
        book: &'a mut Book,
        caller: &'a Caller,
    ) -> Self {
        Self { network, services, book, caller }
    }

    /// The caller's VIF driver.
    pub(super) fn vifs(&self) -> MemoryVifDriver {
        MemoryVifDriver::new(Arc::clone(self.network), self.caller.cluster.clone())
    }

    /// The caller's load balancer driver.
    pub(super) fn load_balancers(&self) -> MemoryLoadBalancerDriver {
        MemoryLoadBalancerDriver::new(Arc::clone(self.services), self.caller.cluster.clone())
    }

    /// The caller's public address driver.
    pub(super) fn public_ips(&self) -> MemoryPublicIpDriver {
        MemoryPublicIpDriver::new(Arc::clone(self.services), self.caller.cluster.clone())
    }

    /// Does `work`, looks at the thing that it concerns before and after, and enters the difference.
    pub(super) fn watched<T: Thing, A>(
        &mut self,
        look: impl Fn(&Self) -> Option<Marked<T>>,
        work: impl FnOnce(&Self) -> A,
    ) -> A {
        let before = look(self);
        let answer = work(self);
        let after = look(self);
        let (effect, thing) = match (before, after) {
            (None, Some(after)) => (Effect::Made, after),
            (Some(before), None) => (Effect::Released, before),
            (Some(before), Some(after)) if !before.thing.same(&after.thing) => (Effect::Changed, after),
            (None, None) | (Some(_), Some(_)) => return answer,
        };
        self.enter(effect, &thing);
        answer
    }

    /// Enters what was done to `thing`.
    pub(super) fn enter<T: Thing>(&mut self, effect: Effect, thing: &Marked<T>) {
        self.book.enter(Entry {
            number: 0, // the book knows
            at: Timestamp::now(),
            call: self.caller.method,
            request_id: self.caller.request_id.clone(),
            cluster: self.caller.cluster.clone(),
            effect,
            kind: T::KIND,
            id: thing.thing.id().to_owned(),
            owner: thing.owner.clone(),
            addresses: thing.thing.addresses(),
        });
    }
}

/// What a driver in memory answers. None of them ever waits.
pub(super) fn at_once<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("the drivers in memory wait for nothing but faults, which these do not have")
}

/// The first of the things that are marked for an owner: each has one of a kind at most.
pub(super) fn first<T>(marked: Result<Vec<Marked<T>>, DriverError>) -> Option<Marked<T>> {
    marked.ok()?.into_iter().next()
}

/// A thing that is made and released.
pub(super) trait Thing {
    /// What sort of thing it is.
    const KIND: Kind;

    /// Its id.
    fn id(&self) -> &str;

    /// Its addresses.
    fn addresses(&self) -> Vec<IpAddr>;

    /// Whether nothing of it was changed by a call. What changes with time alone does not count.
    fn same(&self, other: &Self) -> bool;
}

impl Thing for Vif {
    const KIND: Kind = Kind::Port;

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.ips().collect()
    }

    fn same(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Thing for LoadBalancer {
    const KIND: Kind = Kind::LoadBalancer;

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        vec![self.vip]
    }

    fn same(&self, other: &Self) -> bool {
        *self == Self { status: self.status, ..other.clone() }
    }
}

impl Thing for PublicIp {
    const KIND: Kind = Kind::PublicIp;

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        vec![self.ip]
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}
