//! The addresses of one subnet: those in use, those that cool down after their use, and those that were never used.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::{IpAddrRange, IpNet};
use tokio::time::Instant;

/// Allocates the addresses of a subnet.
///
/// An address is allocated to one user at a time. After its release, it is not allocated again until the cool-down has passed. The number
/// of addresses in use never exceeds the size of the subnet or the limit. The network address, the gateway (the first host address) and the
/// IPv4 broadcast address are never allocated. The current time is an argument of the methods.
#[derive(Debug)]
pub(crate) struct AddressPool {
    limit: usize,
    cool_down: Duration,
    /// The addresses that were never allocated.
    fresh: IpAddrRange,
    /// The addresses in use.
    held: HashSet<IpAddr>,
    /// The addresses that cool down, each with the end of its cool-down, which increases from first to last.
    cooling: VecDeque<(IpAddr, Instant)>,
}

impl AddressPool {
    /// Creates a pool of the addresses of `cidr`, of which up to `limit` may be in use. A released address cools down for `cool_down`.
    pub(crate) fn new(cidr: IpNet, limit: Option<u32>, cool_down: Duration) -> Self {
        let mut fresh = hosts(cidr);
        fresh.next(); // the gateway
        let mut pool = Self { limit: 0, cool_down, fresh, held: HashSet::new(), cooling: VecDeque::new() };
        pool.set_limit(limit);
        pool
    }

    /// Returns the address of the subnet's router: the first host address.
    pub(crate) fn gateway(cidr: IpNet) -> IpAddr {
        hosts(cidr).next().unwrap_or(cidr.network())
    }

    /// Limits the number of addresses in use, or removes the limit (`None`). Addresses beyond a new limit stay in use.
    pub(crate) fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit.map_or(usize::MAX, |limit| limit as usize);
    }

    /// Allocates an address: one that was never used or, without one, the address whose cool-down ended first. Returns `None` if no address
    /// is free or the limit is reached.
    pub(crate) fn take(&mut self, now: Instant) -> Option<IpAddr> {
        if !self.next_free(now)?.is_zero() {
            return None;
        }
        let taken = match self.next_fresh() {
            Some(_) => self.fresh.next()?,
            None => self.cooling.pop_front()?.0,
        };
        self.held.insert(taken);
        Some(taken)
    }

    /// Releases an address, which then cools down. Does nothing if the address is not in use.
    pub(crate) fn give_back(&mut self, address: IpAddr, now: Instant) {
        if self.held.remove(&address) {
            self.cooling.push_back((address, now + self.cool_down));
        }
    }

    /// Returns the time until an address is free (zero if one is free now), or `None` if all are in use or the limit is reached.
    pub(crate) fn next_free(&self, now: Instant) -> Option<Duration> {
        if self.next_fresh().is_some() {
            return Some(Duration::ZERO);
        }
        let (_, until) = self.cooling.front().filter(|_| self.held.len() < self.limit)?;
        Some(until.saturating_duration_since(now))
    }

    /// Returns the next address that was never used, unless the addresses in use and in their cool-down have reached the limit.
    fn next_fresh(&self) -> Option<IpAddr> {
        if self.held.len() + self.cooling.len() < self.limit { self.fresh.clone().next() } else { None }
    }
}

/// Returns the addresses of a subnet without the network address and the IPv4 broadcast address. The smallest subnets have neither.
fn hosts(cidr: IpNet) -> IpAddrRange {
    let mut hosts = cidr.hosts();
    if cidr.addr().is_ipv6() && cidr.prefix_len() < 127 {
        hosts.next();
    }
    hosts
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const COOL_DOWN: Duration = Duration::from_secs(30);

    fn pool(cidr: &str, limit: Option<u32>) -> AddressPool {
        AddressPool::new(cidr.parse().unwrap(), limit, COOL_DOWN)
    }

    fn take_all(pool: &mut AddressPool, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| pool.take(now)).take(1000).map(|address| address.to_string()).collect()
    }

    #[test]
    fn network_gateway_and_broadcast_are_never_handed_out() {
        let taken = take_all(&mut pool("10.0.0.8/29", None), Instant::now());
        assert_eq!(taken, ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"]);
        assert_eq!(AddressPool::gateway("10.0.0.8/29".parse().unwrap()).to_string(), "10.0.0.9");
        assert_eq!(take_all(&mut pool("fd00::/126", None), Instant::now()), ["fd00::2", "fd00::3"]);
    }

    #[test]
    fn the_smallest_and_the_largest_subnets_have_as_many_as_they_have() {
        assert_eq!(take_all(&mut pool("10.0.0.8/32", None), Instant::now()).len(), 0);
        assert_eq!(take_all(&mut pool("10.0.0.8/31", None), Instant::now()), ["10.0.0.9"]);
        assert_eq!(take_all(&mut pool("fd00::1/128", None), Instant::now()).len(), 0);
        assert_eq!(take_all(&mut pool("::/0", None), Instant::now()).len(), 1000);
        assert_eq!(take_all(&mut pool("0.0.0.0/0", None), Instant::now()).len(), 1000);
    }

    #[test]
    fn a_raised_limit_mends_a_full_subnet() {
        let (mut pool, now) = (pool("10.0.0.0/24", Some(2)), Instant::now());
        assert_eq!(take_all(&mut pool, now).len(), 2);
        pool.set_limit(Some(3));
        assert_eq!(take_all(&mut pool, now), ["10.0.0.4"]);
    }

    #[test]
    fn an_address_beyond_a_lowered_limit_is_not_handed_out_again() {
        let (mut pool, now) = (pool("10.0.0.0/24", Some(3)), Instant::now());
        take_all(&mut pool, now);
        pool.set_limit(Some(2));
        pool.give_back("10.0.0.4".parse().unwrap(), now);
        assert_eq!(pool.take(now + COOL_DOWN), None);
        assert_eq!(pool.next_free(now), None);
    }

    #[test]
    fn it_is_reported_when_the_next_address_has_rested() {
        let (mut pool, now) = (pool("10.0.0.0/24", Some(1)), Instant::now());
        let address = pool.take(now).unwrap();
        assert_eq!(pool.next_free(now), None);
        pool.give_back(address, now);
        let later = now + Duration::from_secs(10);
        assert_eq!((pool.take(later), pool.next_free(later)), (None, Some(Duration::from_secs(20))));
        assert_eq!(pool.take(now + COOL_DOWN), Some(address));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Take,
        GiveBack(usize),
        Wait(u64),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => Just(Act::Take),
            2 => any::<usize>().prop_map(Act::GiveBack),
            1 => (1..40_u64).prop_map(Act::Wait),
        ];
        prop::collection::vec(act, 1..200)
    }

    proptest! {
        #[test]
        fn one_holder_each_cool_down_kept_and_exhausted_exactly(limit in 1..12_u32, acts in acts()) {
            let mut pool = pool("10.0.0.0/24", Some(limit));
            let mut now = Instant::now();
            let mut held: Vec<IpAddr> = Vec::new();
            let mut released: HashMap<IpAddr, Instant> = HashMap::new();
            for act in acts {
                match act {
                    Act::Wait(seconds) => now += Duration::from_secs(seconds),
                    Act::GiveBack(_) if held.is_empty() => pool.give_back(IpAddr::from([10, 0, 0, 2]), now),
                    Act::GiveBack(which) => {
                        let address = held.swap_remove(which % held.len());
                        pool.give_back(address, now);
                        pool.give_back(address, now);
                        released.insert(address, now);
                    }
                    Act::Take => {
                        let cooling = released.values().filter(|at| now < **at + COOL_DOWN).count();
                        let free = limit as usize - held.len() - cooling;
                        if let Some(address) = pool.take(now) {
                            prop_assert!(free > 0);
                            prop_assert!(!held.contains(&address));
                            if let Some(at) = released.remove(&address) {
                                prop_assert!(now >= at + COOL_DOWN);
                            }
                            held.push(address);
                        } else {
                            prop_assert_eq!(free, 0);
                        }
                    }
                }
            }
            let mut expected = held.clone();
            let mut found: Vec<_> = pool.held.into_iter().collect();
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
