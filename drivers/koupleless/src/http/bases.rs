//! The addresses at which bases are called, kept without I/O. A base is a long-running Java process that
//! loads modules.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use staffetta_driver::tunnel::NodeId;
use tokio::time::Instant;

/// The time since the last report or answer of a base during which no other IP address can use its id. Koupleless considers a silent base
/// dead after the same time.
const CLAIM: Duration = Duration::from_secs(60);

/// The maximum number of new bases that are accepted at one IP address in the time [`CLAIM`], since each of them costs a Lease.
const MAX_NEW_AT_ADDRESS: usize = 256;

/// The addresses of bases, by their ids. An id is bound to the IP address that reports it, so that no base can report for another one.
#[derive(Debug)]
pub(super) struct Bases {
    limit: usize,
    by_id: HashMap<NodeId, Base>,
    /// For each IP address, the time at which counting began, at most [`CLAIM`] ago, and the number of new bases since then.
    new: HashMap<IpAddr, (Instant, usize)>,
}

/// A base that reports, or for which a node exists.
#[derive(Debug, Default)]
struct Base {
    /// `true` if a node exists for the base.
    has_node: bool,
    /// The address at which the base is called, and its hold on the id; `None` if the address is not known.
    claim: Option<AddressClaim>,
}

/// The address of a base, and the time for which it holds the id.
#[derive(Clone, Copy, Debug)]
struct AddressClaim {
    address: SocketAddr,
    /// The time until which no other IP address can use the id. Reports and answers extend it.
    held_until: Instant,
    /// `true` if the base has reported or answered there. No two bases have the same address then.
    is_confirmed: bool,
    /// The address that last reported with this id, if the address in the Node object has replaced it.
    replaced: Option<SocketAddr>,
}

/// The reason why a report is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddressClaimError {
    /// A base at another IP address holds this id: it reported or answered less than a minute ago, or its Node object names that address.
    #[error("another base has this identity; give each base its own, or wait for {} s", CLAIM.as_secs())]
    Taken,
    /// The maximum number of bases is reached; the value is that number.
    #[error("there are already {0} bases, which is the limit (max_bases)")]
    TooMany(usize),
    /// The maximum number of new bases at this IP address in a minute is reached.
    #[error("{MAX_NEW_AT_ADDRESS} new bases at {0} were accepted within a minute, which is the limit")]
    TooManyNew(IpAddr),
}

impl Bases {
    /// Creates an empty table, to which reports add at most `limit` bases.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, by_id: HashMap::new(), new: HashMap::new() }
    }

    /// Checks that `ip` may report for the base `id`: no base at another IP address holds this id.
    pub(super) fn check(&self, id: &NodeId, ip: IpAddr, now: Instant) -> Result<(), AddressClaimError> {
        let foreign = self.claim(id).is_some_and(|claim| claim.address.ip() != ip && now < claim.held_until);
        if foreign { Err(AddressClaimError::Taken) } else { Ok(()) }
    }

    /// Records a report of a base at `address`. Fails if another base holds the id, or there are too many bases.
    pub(super) fn record(
        &mut self,
        id: &NodeId,
        address: SocketAddr,
        now: Instant,
    ) -> Result<(), AddressClaimError> {
        self.check(id, address.ip(), now)?;
        if !self.by_id.contains_key(id) {
            self.admit(address.ip(), now)?;
        }
        self.confirm(id, address, now);
        Ok(())
    }

    /// Counts a new base at `ip`. Fails if there are too many bases, or too many new ones there.
    fn admit(&mut self, ip: IpAddr, now: Instant) -> Result<(), AddressClaimError> {
        if self.by_id.len() >= self.limit {
            self.by_id
                .retain(|_, base| base.has_node || base.claim.is_some_and(|claim| now < claim.held_until));
            if self.by_id.len() >= self.limit {
                return Err(AddressClaimError::TooMany(self.limit));
            }
        }
        self.new.retain(|_, (since, _)| now < *since + CLAIM);
        let (_, count) = self.new.entry(ip).or_insert((now, 0));
        if *count == MAX_NEW_AT_ADDRESS {
            return Err(AddressClaimError::TooManyNew(ip));
        }
        *count += 1;
        Ok(())
    }

    /// Records that a base answered a query at `address`. This keeps the base alive if its reports reach other replicas.
    pub(super) fn answered(&mut self, id: &NodeId, address: SocketAddr, now: Instant) {
        if self.address(id) == Some(address) {
            self.confirm(id, address, now);
        }
    }

    /// Records that a base is not at `address`: there is no connection, or another base answers. If only its Node object has this address,
    /// the base is called at the address that reported before; if none did, any address may report from now on.
    pub(super) fn absent(&mut self, id: &NodeId, address: SocketAddr, now: Instant) {
        let claim = self.by_id.get_mut(id).and_then(|base| base.claim.as_mut());
        if let Some(claim) = claim.filter(|claim| claim.address == address && !claim.is_confirmed) {
            let replaced = claim.replaced.take();
            claim.address = replaced.unwrap_or(address);
            claim.held_until = replaced.map_or(now, |_| now + CLAIM);
        }
    }

    /// Records that a node exists for the base `id`, with `address` in its Node object. The base is called there if no address of it is
    /// known or, at the first call, in place of a known address with another IP address, since anybody can report with this id; not if
    /// another base has reported or answered there within the time [`CLAIM`]. Returns `true` if it replaced an address.
    pub(super) fn start(&mut self, id: &NodeId, address: Option<SocketAddr>, now: Instant) -> bool {
        let is_taken = |address: &SocketAddr| {
            self.by_id.iter().any(|(other, base)| {
                other != id
                    && base.claim.is_some_and(|claim| {
                        claim.address == *address && claim.is_confirmed && now < claim.held_until
                    })
            })
        };
        let address = address.filter(|address| !is_taken(address));
        let base = self.by_id.entry(id.clone()).or_default();
        let is_first = !std::mem::replace(&mut base.has_node, true);
        let replaced = base.claim.map(|claim| claim.address);
        let Some(address) = address else { return false };
        if replaced.is_some_and(|known| !is_first || known.ip() == address.ip()) {
            return false;
        }
        let held_until = now + CLAIM;
        base.claim = Some(AddressClaim { address, held_until, is_confirmed: false, replaced });
        replaced.is_some()
    }

    /// Forgets a base whose node no longer exists.
    pub(super) fn stop(&mut self, id: &NodeId) {
        self.by_id.remove(id);
    }

    /// Returns the address of a base; `None` if it is not known.
    pub(super) fn address(&self, id: &NodeId) -> Option<SocketAddr> {
        self.claim(id).map(|claim| claim.address)
    }

    /// Returns the claim of a base to its id; `None` if its address is not known.
    fn claim(&self, id: &NodeId) -> Option<&AddressClaim> {
        self.by_id.get(id)?.claim.as_ref()
    }

    /// Records that a base is at `address`. Other bases that had this address are forgotten, or called where they reported before.
    fn confirm(&mut self, id: &NodeId, address: SocketAddr, now: Instant) {
        let claim = AddressClaim { address, held_until: now + CLAIM, is_confirmed: true, replaced: None };
        let earlier = self.by_id.entry(id.clone()).or_default().claim.replace(claim);
        if earlier.is_some_and(|earlier| earlier.is_confirmed && earlier.address == address) {
            return;
        }
        for (_, base) in self.by_id.iter_mut().filter(|(other, _)| *other != id) {
            if let Some(claim) = base.claim.filter(|claim| claim.address == address) {
                base.claim = claim.replaced.map(|address| AddressClaim { address, replaced: None, ..claim });
            }
        }
        self.by_id.retain(|_, base| base.has_node || base.claim.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> NodeId {
        text.parse().unwrap()
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_id_belongs_to_its_address_until_the_base_is_silent() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (ours, theirs) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("a"), ours, now).unwrap();
        bases.record(&id("a"), ours, now + CLAIM / 2).unwrap();
        let before = now + CLAIM * 3 / 2 - Duration::from_millis(1);
        assert_eq!(bases.record(&id("a"), theirs, before), Err(AddressClaimError::Taken));
        assert_eq!(bases.check(&id("a"), theirs.ip(), before), Err(AddressClaimError::Taken));
        assert_eq!(bases.address(&id("a")), Some(ours));
        bases.record(&id("a"), theirs, now + CLAIM * 3 / 2).unwrap();
        assert_eq!(bases.address(&id("a")), Some(theirs));
        let port = at("192.0.2.2:1239");
        bases.record(&id("a"), port, now + CLAIM * 3 / 2).unwrap();
        assert_eq!(
            (bases.address(&id("a")), bases.by_id.len()),
            (Some(port), 1),
            "the process was restarted"
        );
    }

    #[test]
    fn a_base_that_answers_keeps_its_id_without_a_report() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (ours, theirs) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("a"), ours, now).unwrap();
        bases.answered(&id("a"), ours, now + CLAIM);
        bases.answered(&id("a"), theirs, now + CLAIM * 3 / 2);
        let before = now + CLAIM * 2 - Duration::from_millis(1);
        assert_eq!(bases.record(&id("a"), theirs, before), Err(AddressClaimError::Taken));
        bases.record(&id("a"), theirs, now + CLAIM * 2).unwrap();
        bases.answered(&id("b"), ours, now);
        assert_eq!(bases.address(&id("b")), None, "an answer makes no base known");
    }

    #[test]
    fn a_base_whose_address_another_one_has_by_now_gets_no_request() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        bases.start(&id("old"), Some(at("192.0.2.1:1238")), now);
        bases.record(&id("new"), at("192.0.2.1:1238"), now).unwrap();
        assert_eq!(
            (bases.address(&id("old")), bases.address(&id("new"))),
            (None, Some(at("192.0.2.1:1238")))
        );
        let moved = at("192.0.2.2:1238");
        bases.record(&id("old"), moved, now).unwrap();
        assert!(!bases.start(&id("old"), Some(at("192.0.2.3:1238")), now), "its node exists already");
        assert_eq!(bases.address(&id("old")), Some(moved));
    }

    #[test]
    fn the_address_of_a_node_object_counts_until_the_base_reports_and_protects_its_id() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        bases.start(&id("a"), Some(at("192.0.2.1:1238")), now);
        assert_eq!(bases.record(&id("a"), at("192.0.2.2:1238"), now), Err(AddressClaimError::Taken));
        bases.record(&id("a"), at("192.0.2.2:1238"), now + CLAIM).unwrap();
        bases.start(&id("a"), Some(at("192.0.2.1:1238")), now + CLAIM);
        assert_eq!(bases.address(&id("a")), Some(at("192.0.2.2:1238")));
        bases.stop(&id("a"));
        assert!(bases.address(&id("a")).is_none() && bases.by_id.is_empty());
    }

    #[test]
    fn the_address_of_a_node_object_comes_before_another_one_that_reported_with_its_id() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (known, impostor) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("a"), impostor, now).unwrap();
        assert!(bases.start(&id("a"), Some(known), now));
        assert_eq!(bases.address(&id("a")), Some(known));
        assert_eq!(bases.record(&id("a"), impostor, now), Err(AddressClaimError::Taken));
        bases.answered(&id("a"), known, now);
        bases.absent(&id("a"), known, now);
        assert_eq!(bases.address(&id("a")), Some(known), "it answered before");
        assert_eq!(bases.record(&id("a"), impostor, now), Err(AddressClaimError::Taken));
        let port = at("192.0.2.1:1239");
        bases.record(&id("b"), port, now).unwrap();
        assert!(!bases.start(&id("b"), Some(known), now));
        assert_eq!(bases.address(&id("b")), Some(port), "its process was restarted");
        assert!(!bases.start(&id("b"), Some(impostor), now));
        assert_eq!(bases.address(&id("b")), Some(port), "its node exists already");
    }

    #[test]
    fn a_base_that_is_not_at_the_address_of_its_node_object_is_called_where_it_reports() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (former, moved) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("a"), moved, now).unwrap();
        for base in ["a", "b"] {
            bases.start(&id(base), Some(former), now);
            bases.absent(&id(base), moved, now);
            assert_eq!(bases.address(&id(base)), Some(former), "that was another address");
            bases.absent(&id(base), former, now);
        }
        assert_eq!(bases.address(&id("a")), Some(moved));
        assert_eq!(bases.record(&id("a"), former, now), Err(AddressClaimError::Taken));
        let late = at("192.0.2.3:1238");
        bases.record(&id("b"), late, now).unwrap();
        assert_eq!(bases.address(&id("b")), Some(late), "it had not reported before");
    }

    #[test]
    fn of_two_bases_with_the_same_address_in_their_node_objects_the_one_that_answers_has_it() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (shared, moved) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("moved"), moved, now).unwrap();
        for base in ["gone", "moved", "healthy"] {
            assert_eq!(bases.start(&id(base), Some(shared), now), base == "moved");
        }
        bases.answered(&id("healthy"), shared, now);
        let addresses = ["gone", "moved", "healthy"].map(|base| bases.address(&id(base)));
        assert_eq!(addresses, [None, Some(moved), Some(shared)]);
    }

    #[test]
    fn the_address_of_a_node_object_that_another_base_has_by_now_does_not_count() {
        let (mut bases, now) = (Bases::new(9), Instant::now());
        let (former, moved) = (at("192.0.2.1:1238"), at("192.0.2.2:1238"));
        bases.record(&id("b"), former, now).unwrap();
        bases.record(&id("a"), moved, now).unwrap();
        for base in ["a", "silent"] {
            assert!(!bases.start(&id(base), Some(former), now));
        }
        let addresses = ["a", "b", "silent"].map(|base| bases.address(&id(base)));
        assert_eq!(addresses, [Some(moved), Some(former), None]);
    }

    #[test]
    fn silent_bases_without_a_node_make_room_and_others_do_not() {
        let (mut bases, now) = (Bases::new(2), Instant::now());
        let base = |number: u16| SocketAddr::new(IpAddr::from([192, 0, 2, 1]), number);
        bases.record(&id("a"), base(1), now).unwrap();
        bases.start(&id("a"), None, now);
        bases.record(&id("b"), base(2), now).unwrap();
        assert_eq!(bases.record(&id("c"), base(3), now), Err(AddressClaimError::TooMany(2)));
        bases.record(&id("c"), base(3), now + CLAIM).unwrap();
        assert_eq!(bases.record(&id("d"), base(4), now + CLAIM), Err(AddressClaimError::TooMany(2)));
        assert_eq!((bases.address(&id("a")), bases.by_id.len()), (Some(base(1)), 2));
    }

    #[test]
    fn one_address_has_a_limited_number_of_new_bases_in_a_minute() {
        let (mut bases, now) = (Bases::new(9000), Instant::now());
        let record = |bases: &mut Bases, number: usize, port: u16, now| {
            bases.record(&id(&number.to_string()), SocketAddr::from(([192, 0, 2, 1], port)), now)
        };
        // Each takes the address of the one before it.
        for number in 0..MAX_NEW_AT_ADDRESS {
            record(&mut bases, number, 1238, now).unwrap();
        }
        let later = now + CLAIM - Duration::from_millis(1);
        let rejected = Err(AddressClaimError::TooManyNew([192, 0, 2, 1].into()));
        assert_eq!(record(&mut bases, 1000, 1239, later), rejected);
        bases.record(&id("other"), at("192.0.2.2:1238"), later).unwrap();
        let known = MAX_NEW_AT_ADDRESS - 1;
        record(&mut bases, known, 1240, later).unwrap();
        assert_eq!(bases.address(&id(&known.to_string())), Some(at("192.0.2.1:1240")), "it was restarted");
        record(&mut bases, 1000, 1239, now + CLAIM).unwrap();
    }
}
