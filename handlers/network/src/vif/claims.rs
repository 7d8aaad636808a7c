//! The VIFs that belong to pods. The annotations of pods are compared with them, because anybody who may change a pod can name the VIF
//! of another pod in its annotation.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use staffetta_driver::{Owned, Owner, PoolClaim, Uid, Vif, VifId, VifPoolKey, addresses_of};
use tokio::time::Instant;

use super::decide::is_replaceable;
use super::{VifError, VifHandler};

/// The type of the function that is called with the UID of a pod when the VIFs that it publishes were found to belong to it, and were not
/// known to before.
type ClaimObserver = Box<dyn Fn(&Uid) + Send + Sync>;

/// The minimum time between two requests for the list of all VIFs. A list is requested if a pod publishes an unknown VIF.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// The VIFs that belong to pods. The handlers `vif` and `policy` share them. A claim is the fact that a VIF
/// belongs to a pod.
///
/// Each VIF is stored as a hash, which has a random key so that other users cannot predict it.
#[derive(Default)]
pub struct VifClaims {
    /// The VIFs that each pod publishes, as of the last check that had a result, without those that were released since. A
    /// pod without such a check has no entry.
    published: DashMap<Uid, Published>,
    /// The function to call when the VIFs of a pod are found to belong to it; see [`observe`](Self::observe).
    observer: OnceLock<ClaimObserver>,
    /// The VIFs with an ownership mark of a pod: the hashes of each VIF together with the UID of its pod.
    owned: DashSet<u64>,
    /// The VIFs whose ownership mark named no pod when the marks were read, by hash, each with the pod that
    /// uses it, if known. A former VIF pool has handed them out.
    pooled: DashMap<u64, Option<Uid>>,
    /// The UIDs of pods whose annotation names a VIF that is not known to be theirs, each with the time at which that was noticed. A list
    /// of all VIFs that began later settles it.
    unknown_since: DashMap<Uid, Instant>,
    /// The time at which the last list of all VIFs because of an unknown one began, even if it failed; `None` if there was none.
    listed: Mutex<Option<Instant>>,
    hasher: RandomState,
}

/// The VIFs that a pod publishes: those in its annotation when it was last found out if they belong to the pod.
#[derive(Clone, PartialEq)]
struct Published {
    vifs: Vec<VifId>,
    /// `true` if all VIFs in the pod's annotation were found to belong to the pod; `false` if one was found not to.
    is_verified: bool,
    /// The addresses that the pod uses although its annotation names no VIF that has them.
    address_in_use: AddressInUse,
}

/// The addresses of a living pod that its published VIFs do not account for. The pod may be using the VIFs that have them.
#[derive(Clone, PartialEq)]
enum AddressInUse {
    /// The pod uses these addresses, which are in its status.
    Known(Vec<IpAddr>),
    /// The pod may use any address, because its status does not tell which.
    Unknown,
}

impl AddressInUse {
    /// Returns `true` if the address that the pod uses may be one of `vif`.
    fn may_be_of(&self, vif: &Vif) -> bool {
        match self {
            Self::Known(addresses) => vif.ips().any(|ip| addresses.contains(&ip)),
            Self::Unknown => true,
        }
    }
}

impl VifClaims {
    /// Returns the VIFs in the annotation of the pod if all of them belong to it; `None` if one does not, or if that is not known.
    pub fn verified(&self, uid: &Uid) -> Option<Vec<VifId>> {
        self.published
            .get(uid)
            .filter(|published| published.is_verified)
            .map(|published| published.vifs.clone())
    }

    /// Returns `true` if the check whether the VIFs in the pod's annotation belong to it has a result, be it positive or negative.
    pub(crate) fn is_checked(&self, uid: &Uid) -> bool {
        self.published.contains_key(uid)
    }

    /// Returns `true` if the pod is known to publish VIFs, `vif` is not one of them, and the pod does not use an address of `vif`.
    pub(super) fn is_known_unpublished(&self, uid: &Uid, vif: &Vif) -> bool {
        self.published.get(uid).is_some_and(|published| {
            !published.vifs.contains(&vif.id) && !published.address_in_use.may_be_of(vif)
        })
    }

    /// Records that the pod publishes these VIFs, which belong to it, and calls the observer if that is new.
    pub fn set_verified(&self, uid: &Uid, vifs: &[Vif]) {
        self.set_verified_beside(uid, vifs, AddressInUse::Known(Vec::new()));
    }

    /// Does what [`set_verified`](Self::set_verified) does, and records which other addresses the pod may be using.
    fn set_verified_beside(&self, uid: &Uid, vifs: &[Vif], address_in_use: AddressInUse) {
        self.unknown_since.remove(uid);
        let published = Published { vifs: ids(vifs), is_verified: true, address_in_use };
        let before = self.published.insert(uid.clone(), published.clone());
        if let Some(observer) = self.observer.get().filter(|_| before != Some(published)) {
            observer(uid);
        }
    }

    /// Records that the pod publishes these VIFs although one of them does not belong to it, and which other address the pod may be using.
    fn set_unverified(&self, uid: &Uid, vifs: &[Vif], address_in_use: AddressInUse) {
        self.unknown_since.remove(uid);
        let published = Published { vifs: ids(vifs), is_verified: false, address_in_use };
        self.published.insert(uid.clone(), published);
    }

    /// Forgets the VIFs that the pod published, because the pod was deleted.
    pub fn forget(&self, uid: &Uid) {
        self.published.remove(uid);
        self.unknown_since.remove(uid);
    }

    /// Returns the UID of the pod that publishes the VIF and to which the VIF belongs; `None` if there is none.
    pub(crate) fn pod_of(&self, vif: &VifId) -> Option<Uid> {
        let publishes = |published: &Published| published.is_verified && published.vifs.contains(vif);
        self.published.iter().find(|published| publishes(published)).map(|published| published.key().clone())
    }

    /// Returns the pods that publish VIFs which belong to them, by the id of the VIF.
    pub(crate) fn pods(&self) -> HashMap<VifId, Uid> {
        let mut pods = HashMap::new();
        for published in self.published.iter().filter(|published| published.is_verified) {
            pods.extend(published.vifs.iter().map(|vif| (vif.clone(), published.key().clone())));
        }
        pods
    }

    /// Sets the `observer`, which is called with the UID of each pod for which [`set_verified`](Self::set_verified) records
    /// something new. Only the observer of the first call is used.
    pub(crate) fn observe(&self, observer: impl Fn(&Uid) + Send + Sync + 'static) {
        drop(self.observer.set(Box::new(observer)));
    }

    /// Records that the VIF belongs to the pod with this UID.
    pub(super) fn add(&self, uid: &Uid, vif: &Vif) {
        self.owned.insert(self.hash(Some(uid), vif));
    }

    /// Removes the claim of the pod to a VIF that is about to be released.
    pub(super) fn remove(&self, uid: &Uid, vif: &Vif) {
        self.owned.remove(&self.hash(Some(uid), vif));
        self.published.remove_if_mut(uid, |_, published| {
            published.vifs.retain(|published| *published != vif.id);
            published.vifs.is_empty()
        });
    }

    /// Replaces all claims by those that follow from a list of all VIFs with their owners.
    pub(super) fn recover<'a>(&self, marks: impl IntoIterator<Item = &'a Owned<Vif>>) {
        self.owned.clear();
        self.pooled.clear();
        for Owned { owner, resource } in marks {
            match owner {
                Some(owner) => self.add(&owner.uid, resource),
                None => drop(self.pooled.insert(self.hash(None, resource), None)),
            }
        }
    }

    /// Returns `true` if the VIF belongs to the pod: it has the pod's ownership mark, or it comes
    /// from a former VIF pool and no other pod uses it.
    fn contains(&self, pod: &Pod, uid: &Uid, vif: &Vif) -> bool {
        if self.owned.contains(&self.hash(Some(uid), vif)) {
            return true;
        }
        let Some(mut user) = self.pooled.get_mut(&self.hash(None, vif)) else { return false };
        if user.is_none() || vif.has_address_of(pod) {
            *user = Some(uid.clone());
        }
        user.as_ref() == Some(uid)
    }

    /// Returns the time until all VIFs may be listed because the pod publishes an unknown one; `None` if a list has begun since the unknown
    /// VIF was noticed. If the time is zero, the caller must list them now.
    fn list_after(&self, uid: &Uid) -> Option<Duration> {
        let now = Instant::now();
        let noticed = *self.unknown_since.entry(uid.clone()).or_insert(now);
        let mut listed = self.listed.lock();
        let wait = listed.map_or(Duration::ZERO, |listed| (listed + LIST_INTERVAL).duration_since(now));
        if listed.is_some_and(|listed| listed > noticed) {
            return None;
        }
        if wait.is_zero() {
            *listed = Some(now);
        }
        Some(wait)
    }

    /// Returns the keyed hash of a VIF and, if one is given, of its pod.
    fn hash(&self, uid: Option<&Uid>, vif: &Vif) -> u64 {
        self.hasher.hash_one((uid, format!("{:?}", vif.binding())))
    }
}

/// Returns the ids of the VIFs.
fn ids(vifs: &[Vif]) -> Vec<VifId> {
    vifs.iter().map(|vif| vif.id.clone()).collect()
}

impl VifHandler {
    /// Checks that the published VIFs belong to the pod, and records the result. Returns an error if one does not, or if that is not known.
    pub(super) async fn verify(&self, pod: &Pod, owner: &Owner, published: &[Vif]) -> Result<(), VifError> {
        let verified = self.are_of(pod, owner, published).await;
        match &verified {
            Ok(()) => {
                let mut addresses = addresses_of(pod);
                addresses.retain(|address| published.iter().all(|vif| vif.ips().all(|ip| ip != *address)));
                let in_use = self.address_in_use(AddressInUse::Known(addresses));
                self.claims.set_verified_beside(&owner.uid, published, in_use);
            }
            Err(error) if error.needs_another_vif() => {
                let in_use = match addresses_of(pod) {
                    addresses if addresses.is_empty() && !is_replaceable(pod) => AddressInUse::Unknown,
                    addresses => AddressInUse::Known(addresses),
                };
                self.claims.set_unverified(&owner.uid, published, self.address_in_use(in_use));
            }
            Err(_) => {}
        }
        verified
    }

    /// Returns which addresses a pod may use although its annotation does not account for them: those in its status that `known` contains
    /// or, if pods may have additional networks, any, because those are not in the status.
    fn address_in_use(&self, known: AddressInUse) -> AddressInUse {
        if self.drivers.additional.is_some() { AddressInUse::Unknown } else { known }
    }

    /// Fails unless the published VIFs belong to the pod. The ownership marks are read only for a VIF
    /// that neither this process, nor the list of all marks at its start, nor the pool knows. With a
    /// pool, all VIFs are listed too, because the pool of another controller may have created it.
    async fn are_of(&self, pod: &Pod, owner: &Owner, published: &[Vif]) -> Result<(), VifError> {
        for vif in published {
            if self.is_of(pod, owner, vif).await? {
                continue;
            }
            self.marked_vifs(owner).await?;
            if self.is_of(pod, owner, vif).await? {
                continue;
            }
            if let Some(observer) = self.drivers.pool.observer() {
                match self.claims.list_after(&owner.uid) {
                    Some(Duration::ZERO) => drop(self.marks(None).await?),
                    Some(poll_after) => return Err(VifError::Unknown { vif: vif.id.clone(), poll_after }),
                    None => {}
                }
                // The pool has forgotten that the pod publishes a VIF that the pool did not know.
                observer.pod_vifs(pod, Some(published));
            }
            if !self.is_of(pod, owner, vif).await? {
                return Err(VifError::Foreign(vif.id.clone()));
            }
        }
        Ok(())
    }

    /// Returns `true` if the VIF is known to belong to the pod, `false` if it is unknown, and an error if the VIF pool refuses the
    /// claim.
    pub(super) async fn is_of(&self, pod: &Pod, owner: &Owner, vif: &Vif) -> Result<bool, VifError> {
        match self.drivers.pool.claim(owner, vif) {
            PoolClaim::Held => Ok(true),
            PoolClaim::Refused => Err(VifError::Shared),
            PoolClaim::NotPooled => Ok(self.claims.contains(pod, &owner.uid, vif)),
            PoolClaim::Late(key) if self.is_placed_at(pod, owner, &key).await? => Ok(true),
            PoolClaim::Late(_) => Err(VifError::Foreign(vif.id.clone())),
        }
    }

    /// Returns `true` if the pool would give the pod a VIF with this key: one on its node, in its
    /// project and its subnets.
    async fn is_placed_at(&self, pod: &Pod, owner: &Owner, key: &VifPoolKey) -> Result<bool, VifError> {
        let request = self.placed_request(pod, owner).await?;
        let is_host = key.host == request.node_name
            || request.host_ip.is_some_and(|host_ip| key.host == host_ip.to_string());
        Ok(is_host && VifPoolKey::new(&*key.host, &request) == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl VifClaims {
        /// Records that the pod publishes these VIFs, and that one of them does not belong to it.
        pub(crate) fn set_foreign(&self, uid: &Uid, vifs: &[Vif]) {
            self.set_unverified(uid, vifs, AddressInUse::Unknown);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_vif_of_a_pod_that_was_verified_meanwhile_gets_a_list_of_its_own() {
        let (claims, uid) = (VifClaims::default(), "web".into());
        assert_eq!(claims.list_after(&uid), Some(Duration::ZERO));
        claims.set_verified(&uid, &[]);
        tokio::time::advance(LIST_INTERVAL).await;
        assert_eq!(claims.list_after(&"other".into()), Some(Duration::ZERO));
        assert_eq!(claims.list_after(&uid), Some(LIST_INTERVAL), "that list began before");
    }
}
