//! The log of the effects that calls have had on the simulated cloud.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ClusterId, Owner, Uid};

use super::method::Method;

/// The maximum number of effects in one response, which are about 400 KB.
const PAGE: usize = 1_000;

/// An effect of a call on a resource. A call that failed, or that had nothing to change, has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEffect {
    /// The number of the effect. The effects are numbered in their order, from 1 on and without gaps.
    pub number: u64,
    /// The time of the effect, by the clock of the server.
    pub at: Timestamp,
    /// The called method.
    pub call: Method,
    /// The id that the client gave the request; `None` if it gave none. A [`Client`](super::Client) uses a random number, `-`, and the
    /// number of the request.
    pub request_id: Option<String>,
    /// The cluster whose controller made the call.
    pub cluster: ClusterId,
    /// The kind of effect.
    pub effect: EffectKind,
    /// The kind of the resource.
    pub kind: ResourceKind,
    /// The id of the resource.
    pub id: String,
    /// The owner in the ownership mark of the resource (before a release). `None` for a resource without an owner.
    pub owner: Option<Owner>,
    /// The IP addresses of the resource.
    pub addresses: Vec<IpAddr>,
}

/// A kind of effect on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// The resource was created.
    Created,
    /// The resource was changed.
    Changed,
    /// The resource was released.
    Released,
}

/// A kind of resource in the simulated cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A port, which is the VIF of a pod.
    Port,
    /// A load balancer with its listeners, pools and members.
    LoadBalancer,
    /// A public address.
    PublicIp,
}

/// A sequence of effects, oldest first. In JSON, a part of the log of the server.
///
/// ```
/// use staffetta_memory::http::{EffectLog, ResourceKind};
///
/// /// Returns `true` if each owner got one port and released it.
/// fn balanced(log: &EffectLog) -> bool {
///     log.owners(ResourceKind::Port).values().all(|counts| counts.created == 1)
///         && log.existing(ResourceKind::Port).is_empty()
/// }
/// # assert!(balanced(&EffectLog::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectLog {
    /// The number of effects that the server has dropped from the start of its log.
    pub(super) dropped: u64,
    /// The effects, oldest first.
    pub(super) entries: VecDeque<LoggedEffect>,
}

/// Counts of the resources of one kind that an owner has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// The number of resources that were created.
    pub created: usize,
    /// The number of resources that were released.
    pub released: usize,
    /// The maximum number of resources that existed at the same time.
    pub peak: usize,
}

impl EffectLog {
    /// Appends `effect` with the next number. If the log contains `capacity` effects already, drops the oldest one.
    pub(super) fn push(&mut self, effect: LoggedEffect, capacity: usize) {
        if self.entries.len() >= capacity {
            self.entries.pop_front();
            self.dropped += 1;
        }
        let number = self.dropped + self.entries.len() as u64 + 1;
        self.entries.push_back(LoggedEffect { number, ..effect });
    }

    /// Returns the effects after the one with the number `after`, up to the maximum number in one response.
    pub(super) fn page(&self, after: u64) -> Self {
        let skipped = usize::try_from(after.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        Self {
            dropped: self.dropped,
            entries: self.entries.iter().skip(skipped).take(PAGE).cloned().collect(),
        }
    }

    /// Returns the effects, oldest first.
    pub fn entries(&self) -> &VecDeque<LoggedEffect> {
        &self.entries
    }

    /// Returns the resources of this kind that were created and not released, by id. The value is the effect that created the resource.
    pub fn existing(&self, kind: ResourceKind) -> BTreeMap<&str, &LoggedEffect> {
        let mut existing = BTreeMap::new();
        for entry in self.of(kind) {
            match entry.effect {
                EffectKind::Created => drop(existing.insert(entry.id.as_str(), entry)),
                EffectKind::Released => drop(existing.remove(entry.id.as_str())),
                EffectKind::Changed => {}
            }
        }
        existing
    }

    /// Counts the resources of this kind, by the UID of their owners.
    pub fn owners(&self, kind: ResourceKind) -> BTreeMap<&Uid, OwnerCounts> {
        let mut owners: BTreeMap<&Uid, OwnerCounts> = BTreeMap::new();
        for entry in self.of(kind) {
            let Some(owner) = &entry.owner else { continue };
            let counts = owners.entry(&owner.uid).or_default();
            match entry.effect {
                EffectKind::Created => counts.created += 1,
                EffectKind::Released => counts.released += 1,
                EffectKind::Changed => {}
            }
            counts.peak = counts.peak.max(counts.created.saturating_sub(counts.released));
        }
        owners
    }

    /// Returns the effects on resources of this kind, oldest first.
    fn of(&self, kind: ResourceKind) -> impl Iterator<Item = &LoggedEffect> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(effect: EffectKind, kind: ResourceKind, id: &str, uid: &str) -> LoggedEffect {
        LoggedEffect {
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

    fn log(capacity: usize, effects: impl IntoIterator<Item = LoggedEffect>) -> EffectLog {
        let mut log = EffectLog::default();
        effects.into_iter().for_each(|effect| log.push(effect, capacity));
        log
    }

    fn ports(number: usize) -> impl Iterator<Item = LoggedEffect> {
        (1..=number).map(|id| effect(EffectKind::Created, ResourceKind::Port, &id.to_string(), "a"))
    }

    fn numbers(page: &EffectLog) -> Vec<(u64, &str)> {
        page.entries.iter().map(|entry| (entry.number, entry.id.as_str())).collect()
    }

    #[test]
    fn a_created_resource_exists_until_it_is_released() {
        let log = log(
            10,
            [
                effect(EffectKind::Created, ResourceKind::Port, "p1", "a"),
                effect(EffectKind::Created, ResourceKind::Port, "p2", "b"),
                effect(EffectKind::Created, ResourceKind::LoadBalancer, "l1", "c"),
                effect(EffectKind::Changed, ResourceKind::LoadBalancer, "l1", "c"),
                effect(EffectKind::Released, ResourceKind::Port, "p1", "a"),
            ],
        );
        assert_eq!(log.existing(ResourceKind::Port).into_keys().collect::<Vec<_>>(), ["p2"]);
        assert_eq!(log.existing(ResourceKind::LoadBalancer).into_keys().collect::<Vec<_>>(), ["l1"]);
        assert!(log.existing(ResourceKind::PublicIp).is_empty());
    }

    #[test]
    fn two_resources_one_after_the_other_are_counted_apart_from_two_at_once() {
        let log = log(
            10,
            [
                effect(EffectKind::Created, ResourceKind::Port, "p1", "one-after-the-other"),
                effect(EffectKind::Released, ResourceKind::Port, "p1", "one-after-the-other"),
                effect(EffectKind::Created, ResourceKind::Port, "p2", "one-after-the-other"),
                effect(EffectKind::Created, ResourceKind::Port, "p3", "two-at-once"),
                effect(EffectKind::Created, ResourceKind::Port, "p4", "two-at-once"),
                effect(EffectKind::Released, ResourceKind::Port, "p3", "two-at-once"),
                effect(EffectKind::Created, ResourceKind::LoadBalancer, "l1", "two-at-once"),
            ],
        );
        let owners = log.owners(ResourceKind::Port);
        let counts: Vec<_> = owners.into_iter().map(|(uid, counts)| (uid.as_str(), counts)).collect();
        let expected = [
            ("one-after-the-other", OwnerCounts { created: 2, released: 1, peak: 1 }),
            ("two-at-once", OwnerCounts { created: 2, released: 1, peak: 2 }),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn effects_are_numbered_without_gaps_and_the_oldest_are_dropped() {
        let log = log(3, ports(5));
        let page = log.page(0);
        assert_eq!((page.dropped, numbers(&page)), (2, vec![(3, "3"), (4, "4"), (5, "5")]));
        assert_eq!(numbers(&log.page(1)), numbers(&page));
        assert_eq!(numbers(&log.page(4)), [(5, "5")]);
        assert_eq!(numbers(&log.page(5)), []);
        assert_eq!(numbers(&log.page(u64::MAX)), []);
    }

    #[test]
    fn an_answer_holds_a_page_at_most() {
        let log = log(PAGE + 2, ports(PAGE + 2));
        assert_eq!(log.page(0).entries.len(), PAGE);
        assert_eq!(log.page(PAGE as u64).entries.len(), 2);
    }
}
