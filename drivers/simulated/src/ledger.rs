//! What took effect in the simulated network, in order, and what follows from it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, Owner, Uid};

use crate::method::Method;

/// A call that took effect. One that failed, or that found everything as it should be, is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the order of effects, without gaps from 1 on.
    pub number: u64,
    /// When it took effect, by the clock of the network's machine.
    pub at: Timestamp,
    /// The call.
    pub call: Method,
    /// The id that the caller gave its request: `<a number of its process>-<a number of the request>`.
    pub request_id: Option<String>,
    /// The cluster that called.
    pub cluster: ClusterId,
    /// What came of it.
    pub effect: Effect,
    /// What sort of thing it concerns.
    pub kind: Kind,
    /// The id of the thing.
    pub id: String,
    /// The owner whose mark the thing bears, or bore when it was released.
    pub owner: Option<Owner>,
    /// The addresses of the thing.
    pub addresses: Vec<IpAddr>,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// There is one more.
    Made,
    /// It is not what it was.
    Changed,
    /// It does not exist any more.
    Released,
}

/// A sort of things that are made and released. A load balancer counts with all that hangs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A port: the VIF of a pod.
    Port,
    /// A load balancer.
    LoadBalancer,
    /// A public address.
    PublicIp,
}

/// Everything that took effect, oldest first.
///
/// ```
/// use staffetta_simulated::{Kind, Ledger};
///
/// /// Whether each owner got one port and gave it back.
/// fn balanced(ledger: &Ledger) -> bool {
///     ledger.owners(Kind::Port).values().all(|tally| tally.made == 1) && ledger.standing(Kind::Port).is_empty()
/// }
/// # assert!(balanced(&Ledger::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(Vec<Entry>);

/// How often one owner got something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many things were made for it.
    pub made: usize,
    /// How many of them were released.
    pub released: usize,
    /// How many of them it had at once, at most.
    pub most: usize,
}

impl Ledger {
    /// These entries, oldest first.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// What was made and not released, by id, each with the entry of its making.
    pub fn standing(&self, kind: Kind) -> BTreeMap<&str, &Entry> {
        let mut standing = BTreeMap::new();
        for entry in self.of(kind) {
            match entry.effect {
                Effect::Made => drop(standing.insert(entry.id.as_str(), entry)),
                Effect::Released => drop(standing.remove(entry.id.as_str())),
                Effect::Changed => {}
            }
        }
        standing
    }

    /// How often each owner got something of that kind.
    pub fn owners(&self, kind: Kind) -> BTreeMap<&Uid, Tally> {
        let mut owners: BTreeMap<&Uid, Tally> = BTreeMap::new();
        for entry in self.of(kind) {
            let Some(owner) = &entry.owner else { continue };
            let tally = owners.entry(&owner.uid).or_default();
            match entry.effect {
                Effect::Made => tally.made += 1,
                Effect::Released => tally.released += 1,
                Effect::Changed => {}
            }
            tally.most = tally.most.max(tally.made.saturating_sub(tally.released));
        }
        owners
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(move |entry| entry.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(effect: Effect, kind: Kind, id: &str, uid: &str) -> Entry {
        Entry {
            number: 0,
            at: Timestamp::UNIX_EPOCH,
            call: Method::RequestVif,
            request_id: None,
            cluster: "east".into(),
            effect,
            kind,
            id: id.into(),
            owner: Some(Owner { namespace: "default".into(), name: "web".into(), uid: uid.into() }),
            addresses: Vec::new(),
        }
    }

    fn tallies(ledger: &Ledger) -> Vec<(&str, Tally)> {
        ledger.owners(Kind::Port).into_iter().map(|(uid, tally)| (uid.as_str(), tally)).collect()
    }

    #[test]
    fn what_was_made_stands_until_it_is_released() {
        let ledger = Ledger::new(vec![
            entry(Effect::Made, Kind::Port, "p1", "a"),
            entry(Effect::Made, Kind::Port, "p2", "b"),
            entry(Effect::Made, Kind::LoadBalancer, "l1", "c"),
            entry(Effect::Changed, Kind::LoadBalancer, "l1", "c"),
            entry(Effect::Released, Kind::Port, "p1", "a"),
        ]);
        assert_eq!(ledger.standing(Kind::Port).into_keys().collect::<Vec<_>>(), ["p2"]);
        assert_eq!(ledger.standing(Kind::LoadBalancer).into_keys().collect::<Vec<_>>(), ["l1"]);
        assert!(ledger.standing(Kind::PublicIp).is_empty());
    }

    #[test]
    fn an_owner_that_got_two_things_is_told_from_one_that_had_two_at_once() {
        let ledger = Ledger::new(vec![
            entry(Effect::Made, Kind::Port, "p1", "one-after-the-other"),
            entry(Effect::Released, Kind::Port, "p1", "one-after-the-other"),
            entry(Effect::Made, Kind::Port, "p2", "one-after-the-other"),
            entry(Effect::Made, Kind::Port, "p3", "two-at-once"),
            entry(Effect::Made, Kind::Port, "p4", "two-at-once"),
            entry(Effect::Released, Kind::Port, "p3", "two-at-once"),
            entry(Effect::Made, Kind::LoadBalancer, "l1", "two-at-once"),
        ]);
        let expected = [
            ("one-after-the-other", Tally { made: 2, released: 1, most: 1 }),
            ("two-at-once", Tally { made: 2, released: 1, most: 2 }),
        ];
        assert_eq!(tallies(&ledger), expected);
    }
}
