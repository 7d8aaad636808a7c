//! In-memory records of load balancers whose state the annotation does not show.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;

use dashmap::DashMap;
use staffetta_driver::{LoadBalancer, Owned, Owner, PortId, PublicIp, Uid};

use super::endpoints::ServiceKey;
use super::state::LbaasState;
use crate::records::RecordMap;

/// The in-memory record of one service's load balancer. It exists only while the annotation does
/// not show the full state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LbRecord {
    /// A driver was called and the outcome is unknown, so that the ownership marks must be read.
    /// The value is the public address before the call. If a user provided it, it carries no
    /// ownership mark, and the annotation may not name it yet.
    Unknown(Option<PublicIp>),
    /// The load balancer and the public address that carried the service's ownership mark when the
    /// marks of all services were last read, and an associated user-provided address. Other
    /// resources without an ownership mark are missing.
    Owned(LbaasState),
    /// The full state of the load balancer and the public address, which the annotation does not show yet.
    Known(LbaasState),
}

/// The load balancers and public addresses with an ownership mark (tag or label), of one service or
/// of all. Public addresses without an ownership mark may be included.
pub(super) struct Marks {
    /// The load balancers with an ownership mark.
    pub(super) load_balancers: Vec<Owned<LoadBalancer>>,
    /// The public addresses, with or without an ownership mark.
    pub(super) public_ips: Vec<Owned<PublicIp>>,
}

impl Marks {
    /// Returns the public addresses without an ownership mark, which users provide, by the port with
    /// which they are associated.
    pub(super) fn unmarked_ips(&self) -> HashMap<PortId, PublicIp> {
        let unmarked = self.public_ips.iter().filter(|marked| marked.owner.is_none());
        unmarked.filter_map(|marked| Some((marked.resource.port.clone()?, marked.resource.clone()))).collect()
    }

    /// Returns the in-memory records that follow from the ownership marks, by the UID of the
    /// service.
    pub(super) fn into_records(self) -> HashMap<Uid, LbRecord> {
        let unmarked_ips = self.unmarked_ips();
        let mut records: HashMap<Uid, LbRecord> = HashMap::new();
        for Owned { owner, resource } in self.load_balancers {
            let Some(owner) = owner else { continue };
            let state = LbaasState { load_balancer: Some(resource), ..LbaasState::default() };
            // An owner with two load balancers has one too many, which is released when the service
            // is reconciled.
            records
                .entry(owner.uid)
                .and_modify(|record| *record = LbRecord::Unknown(None))
                .or_insert(LbRecord::Owned(state));
        }
        for Owned { owner, resource } in self.public_ips {
            let Some(owner) = owner else { continue };
            match records.entry(owner.uid).or_insert(LbRecord::Owned(LbaasState::default())) {
                LbRecord::Owned(state) if state.public_ip.is_none() => state.public_ip = Some(resource),
                record => *record = LbRecord::Unknown(None),
            }
        }
        for record in records.values_mut() {
            if let LbRecord::Owned(state) = record {
                state.add_user_ip(&unmarked_ips);
            }
        }
        records
    }
}

/// The in-memory records of the load balancers of all services. A service whose annotation shows
/// the full state has no record.
#[derive(Default)]
pub(super) struct LbRecords {
    records: RecordMap<LbRecord>,
    /// The number of consecutive failures of each load balancer, by the UID of the service.
    failures: DashMap<Uid, u32>,
    /// The hash of the annotation with the state that this process wrote last, by the UID of the
    /// service. The hash has a random key, so that other users cannot predict it.
    written: DashMap<Uid, u64>,
    /// The owners that the ownership marks named when those of all services were last read. A service that was deleted and created again
    /// while no controller ran has another UID than they.
    owners: DashMap<ServiceKey, Vec<Owner>>,
    hasher: RandomState,
}

impl Deref for LbRecords {
    type Target = RecordMap<LbRecord>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl LbRecords {
    /// Counts a failure of the service's load balancer and returns the number of consecutive failures.
    pub(super) fn add_failure(&self, uid: &Uid) -> u32 {
        let mut failures = self.failures.entry(uid.clone()).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    /// Resets the number of consecutive failures of the service's load balancer, which became active.
    pub(super) fn clear_failures(&self, uid: &Uid) {
        self.failures.remove(uid);
    }

    /// Stores the hash of `text`, the annotation with the state that this process wrote on the service. `None`
    /// removes the hash, for an annotation that was written without members because it would be too long.
    pub(super) fn set_written(&self, uid: &Uid, text: Option<&str>) {
        match text {
            Some(text) => drop(self.written.insert(uid.clone(), self.hasher.hash_one(text))),
            None => drop(self.written.remove(uid)),
        }
    }

    /// Returns `true` if `text` is the annotation with the state that this process wrote last on the service. Everybody
    /// who may change the service can write another annotation, which may name the resources of other services.
    pub(super) fn has_written(&self, uid: &Uid, text: &str) -> bool {
        self.written.get(uid).is_some_and(|written| *written == self.hasher.hash_one(text))
    }

    /// Returns the owners of resources at the start that had the name of this service, and another UID.
    pub(super) fn predecessors(&self, key: &ServiceKey, uid: &Uid) -> Vec<Owner> {
        let owners = self.owners.get(key);
        owners.iter().flat_map(|owners| owners.iter()).filter(|owner| owner.uid != *uid).cloned().collect()
    }

    /// Forgets that resources of `owner` existed at the start, because they were released.
    pub(super) fn forget_owner(&self, owner: &Owner) {
        if let Some(mut owners) = self.owners.get_mut(&key_of(owner)) {
            owners.retain(|other| other != owner);
        }
    }

    /// Removes everything that is stored about a service whose load balancer was released.
    pub(super) fn forget(&self, uid: &Uid) {
        self.remove(uid);
        self.clear_failures(uid);
        self.set_written(uid, None);
    }

    /// Replaces all records by those that follow from `marks`, and removes the hashes of the annotations that this process wrote.
    pub(super) fn recover(&self, marks: Marks) {
        self.written.clear();
        self.owners.clear();
        let balancers = marks.load_balancers.iter().filter_map(|marked| marked.owner.as_ref());
        for owner in balancers.chain(marks.public_ips.iter().filter_map(|marked| marked.owner.as_ref())) {
            self.owners.entry(key_of(owner)).or_default().push(owner.clone());
        }
        self.replace_all(marks.into_records());
    }
}

/// Returns the key of the service that owns a resource.
fn key_of(owner: &Owner) -> ServiceKey {
    ServiceKey::new(Some(&owner.namespace), &owner.name)
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Allocation;

    use super::*;
    use crate::lb::testing::{load_balancer, public_ip};

    fn marked<T>(uid: &str, resource: T) -> Owned<T> {
        let owner = Owner { namespace: "default".into(), name: "web".into(), uid: uid.into() };
        Owned { owner: Some(owner), resource }
    }

    #[test]
    fn the_marks_of_one_owner_make_one_record_and_surplus_ones_are_unknown() {
        let records = LbRecords::default();
        records.set(&"old".into(), LbRecord::Unknown(None));
        let lb = || load_balancer("default/web", "10.0.0.1");
        let ip = || public_ip(Allocation::Pool);
        let load_balancers = vec![marked("whole", lb()), marked("twice", lb()), marked("twice", lb())];
        let public_ips = vec![marked("whole", ip()), marked("address", ip()), marked("twice", ip())];
        records.recover(Marks { load_balancers, public_ips });
        let whole = LbaasState { load_balancer: Some(lb()), public_ip: Some(ip()), unmarked: false };
        let address = LbaasState { public_ip: Some(ip()), ..LbaasState::default() };
        assert_eq!(records.get(&"whole".into()), Some(LbRecord::Owned(whole)));
        assert_eq!(records.get(&"address".into()), Some(LbRecord::Owned(address)));
        assert_eq!(records.get(&"twice".into()), Some(LbRecord::Unknown(None)));
        assert_eq!(records.get(&"old".into()), None);
    }
}
