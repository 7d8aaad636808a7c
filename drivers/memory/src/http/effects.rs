//! The log of the resources of the simulated cloud that calls have created, changed and released.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use staffetta_driver::{Owner, Uid};

/// The creation, change or release of a resource by a call. A call that changed nothing is not logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEffect {
    /// The id that the client gave the request; `None` if it gave none. A [`Client`](super::Client) uses a random number, `-`, and the
    /// number of the request.
    pub request_id: Option<String>,
    /// The kind of effect: the resource was created, changed or released.
    pub effect: EffectKind,
    /// The kind of the resource.
    pub kind: ResourceKind,
    /// The id of the resource.
    pub id: String,
    /// The owner in the ownership mark of the resource (before a release). `None` for a resource without an owner.
    pub owner: Option<Owner>,
}

/// A kind of effect on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// The resource was created, or an owner adopted it.
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

/// The log of all resources that calls have created, changed and released so far, oldest entry first.
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
pub struct EffectLog(pub(super) Vec<LoggedEffect>);

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
    /// Returns all entries of the log, oldest first.
    pub fn entries(&self) -> &[LoggedEffect] {
        &self.0
    }

    /// Returns the resources of this kind that were created and not released, by id. The value is the entry of the creation.
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

    /// Counts the resources of this kind that were created and released, by the UID of their owners. Those without an owner are not
    /// counted.
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

    /// Returns the entries for resources of this kind, oldest first.
    fn of(&self, kind: ResourceKind) -> impl Iterator<Item = &LoggedEffect> {
        self.0.iter().filter(move |entry| entry.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(effect: EffectKind, kind: ResourceKind, id: &str, uid: &str) -> LoggedEffect {
        LoggedEffect {
            request_id: None,
            effect,
            kind,
            id: id.into(),
            owner: Some(Owner { namespace: "default".into(), name: "web".into(), uid: uid.into() }),
        }
    }

    #[test]
    fn a_created_resource_exists_until_it_is_released() {
        let log = EffectLog(vec![
            effect(EffectKind::Created, ResourceKind::Port, "p1", "a"),
            effect(EffectKind::Created, ResourceKind::Port, "p2", "b"),
            effect(EffectKind::Created, ResourceKind::LoadBalancer, "l1", "c"),
            effect(EffectKind::Changed, ResourceKind::LoadBalancer, "l1", "c"),
            effect(EffectKind::Released, ResourceKind::Port, "p1", "a"),
        ]);
        assert_eq!(log.existing(ResourceKind::Port).into_keys().collect::<Vec<_>>(), ["p2"]);
        assert_eq!(log.existing(ResourceKind::LoadBalancer).into_keys().collect::<Vec<_>>(), ["l1"]);
        assert!(log.existing(ResourceKind::PublicIp).is_empty());
    }

    #[test]
    fn two_resources_one_after_the_other_are_counted_apart_from_two_at_once() {
        let log = EffectLog(vec![
            effect(EffectKind::Created, ResourceKind::Port, "p1", "one-after-the-other"),
            effect(EffectKind::Released, ResourceKind::Port, "p1", "one-after-the-other"),
            effect(EffectKind::Created, ResourceKind::Port, "p2", "one-after-the-other"),
            effect(EffectKind::Created, ResourceKind::Port, "p3", "two-at-once"),
            effect(EffectKind::Created, ResourceKind::Port, "p4", "two-at-once"),
            effect(EffectKind::Released, ResourceKind::Port, "p3", "two-at-once"),
            effect(EffectKind::Created, ResourceKind::LoadBalancer, "l1", "two-at-once"),
        ]);
        let owners = log.owners(ResourceKind::Port);
        let counts: Vec<_> = owners.into_iter().map(|(uid, counts)| (uid.as_str(), counts)).collect();
        let expected = [
            ("one-after-the-other", OwnerCounts { created: 2, released: 1, peak: 1 }),
            ("two-at-once", OwnerCounts { created: 2, released: 1, peak: 2 }),
        ];
        assert_eq!(counts, expected);
    }
}
