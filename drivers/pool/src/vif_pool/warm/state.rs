//! The state of the VIF pool: the VIFs by key, the pods that hold them, and the waiting requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_driver::{
    DriverError, NetworkId, Owner, PoolClaim, PooledVifList, SecurityGroupId, Subnet, Uid, Vif, VifId,
    VifPoolKey,
};
use tokio::sync::oneshot;

use super::VifPoolPolicy;
use super::exhaustion::Exhaustion;
use super::living::LivingPod;
use crate::pool::{Candidate, MinMaxBatch, PoolKind, WarmPool};

/// The [`PoolKind`] of a pool of VIFs, which are created and deleted one by one. VIFs with the
/// required security groups are handed out first, then those that are active, then the one that has been free
/// the longest.
pub(super) enum Vifs {}

/// The sequence number under which the pool records that a pod holds a VIF or waits for one. The pool uses it as the owner of the
/// VIF, so that a pod that requests a second VIF gets another one.
pub(super) type Hold = u64;

impl PoolKind for Vifs {
    type Group = VifId;
    type Item = VifId;
    /// The security groups that a pod requires, [sorted], so that equal sets compare as equal.
    type Want = Vec<SecurityGroupId>;
    type Owner = Hold;
    type Rank = (bool, bool, Duration);

    fn items(group: &VifId) -> Vec<VifId> {
        vec![group.clone()]
    }

    fn group(item: &VifId) -> VifId {
        item.clone()
    }

    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank {
        (!candidate.fits, !candidate.ready, candidate.since)
    }
}

/// Returns the security groups sorted and without duplicates, so that they can be compared.
pub(super) fn sorted(security_groups: &[SecurityGroupId]) -> Vec<SecurityGroupId> {
    security_groups.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// The state of the VIF pool, protected by one lock that is never held across an await.
#[derive(Default)]
pub(super) struct VifPoolState {
    /// The startup phase. VIFs are handed out only in the phase [`StartupPhase::Open`].
    pub(super) phase: StartupPhase,
    /// The pool of each key, that is, of each combination of node, project, network and subnets.
    pub(super) pools: BTreeMap<Arc<VifPoolKey>, KeyPool>,
    /// The VIFs of all keys, free or in use, by id.
    pub(super) places: HashMap<VifId, Place>,
    /// The pods that hold each VIF, by the id of the VIF. More than one pod for a VIF is a fault.
    pub(super) holders: HashMap<VifId, Vec<VifHolder>>,
    /// The VIFs that a pod holds, by the UID of the pod.
    pub(super) by_owner: HashMap<Uid, Vec<VifId>>,
    /// The living pods with a node, by UID.
    pub(super) pods: HashMap<Uid, LivingPod>,
    /// The exhausted resources that the pools of several keys share.
    pub(super) exhaustion: Exhaustion,
    /// `true` if the existing VIFs may differ from those in `places` and must be listed.
    pub(super) needs_listing: bool,
    /// The last number that [`Self::next_number`] returned.
    last: u64,
}

/// The startup phase of the pool.
#[derive(Default)]
pub(super) enum StartupPhase {
    /// The existing VIFs have not been listed.
    #[default]
    Unlisted,
    /// The existing VIFs were listed; the pods that use them have not all been recorded yet.
    Listed(PooledVifList),
    /// The existing VIFs and the pods that use them are known: VIFs are handed out.
    Open,
}

/// The pool of the VIFs with one [`VifPoolKey`].
pub(super) struct KeyPool {
    /// The state machine that decides what to create, delete and hand out.
    pub(super) warm: WarmPool<Vifs>,
    /// The waiting requests. Each is woken when it may take its VIF, or gets the error that explains why there is none.
    pub(super) waiters: HashMap<Hold, oneshot::Sender<Result<(), DriverError>>>,
    /// The subnets for new VIFs; empty until the first request.
    pub(super) subnets: Vec<Subnet>,
    /// The error of the last refill of this pool, or of another pool that found a shared resource exhausted; `None` if that refill
    /// succeeded, or if there was none.
    pub(super) failure: Option<DriverError>,
    /// The number of consecutive checks in which the node of the key was missing.
    pub(super) absent: u8,
    /// The time of the next due work of this pool, counted from the creation of the VIF pool; `None` if there is none.
    pub(super) due: Option<Duration>,
    /// The sequence number of this pool's last refill that found a quota or its subnets exhausted, which increases over the refills of all
    /// pools; 0 if none did. Of the pools with due work, those with smaller numbers try first.
    pub(super) exhausted: u64,
}

/// A VIF that belongs to the pool.
#[derive(Clone)]
pub(super) struct Place {
    /// The key of the pool to which the VIF belongs.
    pub(super) key: Arc<VifPoolKey>,
    /// The VIF as the driver returned it.
    pub(super) vif: Arc<Vif>,
}

impl Place {
    /// Returns `true` if `vif`, which a pod returned, is the VIF that was handed out. Otherwise the annotation of the pod was
    /// changed, which must not affect the next pod.
    pub(super) fn is_of(&self, vif: &Vif) -> bool {
        self.vif.binding() == vif.binding()
    }
}

/// A pod that holds a VIF.
#[derive(Clone)]
pub(super) struct VifHolder {
    /// The sequence number under which the pool records that the pod holds the VIF.
    pub(super) hold: Hold,
    /// The pod that holds the VIF.
    pub(super) owner: Arc<Owner>,
    /// The claim that decides between several pods with the same VIF.
    pub(super) claim: HolderClaim,
}

/// The claim of a pod to a VIF, the best first. Of several pods with the same VIF, the one with the best claim keeps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HolderClaim {
    /// The pool handed the VIF out to the pod.
    HandedOut,
    /// The annotation of the pod contains the VIF, or the pod has an address of the VIF.
    Shown {
        /// `true` if that was first seen after the pool had started.
        is_late: bool,
        /// The creation time of the pod.
        created: Option<Time>,
    },
    /// The pod got a VIF on this node, and nothing tells which.
    Possible,
}

/// The evidence in the status of a pod, which its owner cannot write, for a VIF of the pool in its annotation; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Usage {
    /// The pod has an address of the VIF.
    Confirmed,
    /// The pod has no address yet, and is on the node of the VIF.
    Open,
    /// The pod has no address yet, and is not known to be on the node of the VIF.
    Elsewhere,
    /// The pod has other addresses: it runs with another VIF, and somebody changed its annotation.
    Contradicted,
}

impl HolderClaim {
    /// Returns the claim of a pod whose annotation contains a VIF.
    fn of_annotation(pod: &Pod, is_late: bool) -> Self {
        Self::Shown { is_late, created: pod.metadata.creation_timestamp.clone() }
    }
}

impl VifPoolState {
    /// Returns a number that is larger than all numbers returned before.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the pool of the key, and creates it if it does not exist.
    pub(super) fn pool(&mut self, key: &Arc<VifPoolKey>, policy: &VifPoolPolicy) -> &mut KeyPool {
        self.pools.entry(Arc::clone(key)).or_insert_with(|| {
            let VifPoolPolicy { min, max, batch, cool_down } = *policy;
            KeyPool {
                warm: WarmPool::new(Arc::new(MinMaxBatch { min, max, batch, cap_groups: None }), cool_down),
                waiters: HashMap::new(),
                subnets: Vec::new(),
                failure: None,
                absent: 0,
                due: None,
                exhausted: 0,
            }
        })
    }

    /// Returns the keys of the pools whose VIFs are in `network`.
    pub(super) fn keys_in(&self, network: &NetworkId) -> Vec<Arc<VifPoolKey>> {
        self.pools.keys().filter(|key| key.network == *network).cloned().collect()
    }

    /// Returns a pod that holds the VIF, normally the only one; `None` if no pod is known to hold it.
    pub(super) fn holder(&self, id: &VifId) -> Option<&Owner> {
        let known = self.holders.get(id)?.iter().find(|holder| holder.claim != HolderClaim::Possible);
        known.map(|holder| &*holder.owner)
    }

    /// Returns the VIFs that the pod is known to hold.
    pub(super) fn held_by(&self, uid: &Uid) -> Vec<VifId> {
        let is_possible =
            |holder: &VifHolder| holder.owner.uid == *uid && holder.claim == HolderClaim::Possible;
        let held = self.by_owner.get(uid).into_iter().flatten();
        held.filter(|id| !self.holders[*id].iter().any(is_possible)).cloned().collect()
    }

    /// Records that `owner` holds the VIF.
    pub(super) fn hold(&mut self, id: &VifId, hold: Hold, owner: &Owner, claim: HolderClaim) {
        let holder = VifHolder { hold, owner: Arc::new(owner.clone()), claim };
        self.holders.entry(id.clone()).or_default().push(holder);
        self.by_owner.entry(owner.uid.clone()).or_default().push(id.clone());
    }

    /// Records an event of a pod whose annotation contains the VIF. Returns `true` if the pod did not hold
    /// the VIF before.
    pub(super) fn record_annotation(&mut self, pod: &Pod, vif: &Vif) -> bool {
        let owner = Owner::of(&pod.metadata);
        let mut holders = self.holders.get_mut(&vif.id).into_iter().flatten();
        if let Some(holder) = holders.find(|holder| holder.owner.uid == owner.uid) {
            match holder.claim {
                HolderClaim::HandedOut => {}
                HolderClaim::Shown { is_late, .. } => {
                    holder.claim = HolderClaim::of_annotation(pod, is_late);
                }
                HolderClaim::Possible => holder.claim = HolderClaim::of_annotation(pod, true),
            }
            return false;
        }
        let claim = HolderClaim::of_annotation(pod, matches!(self.phase, StartupPhase::Open));
        let number = self.next_number();
        self.hold(&vif.id, number, &owner, claim);
        true
    }

    /// Returns the claim of the pod `owner` to `vif`, which its annotation contains. The claim is refused if another pod has a better one,
    /// if the pod runs with other addresses, if the annotation does not match the VIF, or if the VIF is about to be deleted. It is also
    /// refused as long as nothing tells which of several pods got the VIF: the older one may have a copy of the annotation, while the other
    /// one has been started a moment ago.
    pub(super) fn claim(&self, owner: &Owner, vif: &Vif) -> PoolClaim {
        let Some(place) = self.places.get(&vif.id) else { return PoolClaim::NotPooled };
        let is_used = self.pools.get(&place.key).is_some_and(|pool| pool.warm.is_used(&vif.id));
        let holders = self.holders.get(&vif.id).into_iter().flatten();
        let rank = |holder: &VifHolder| match holder.claim {
            HolderClaim::HandedOut => (0, Usage::Confirmed, false),
            HolderClaim::Shown { is_late, .. } => (1, self.usage(&holder.owner.uid, place), is_late),
            HolderClaim::Possible => (2, Usage::Open, false),
        };
        let first = holders.clone().min_by(|one, other| {
            (rank(one), &one.claim, &one.owner.uid).cmp(&(rank(other), &other.claim, &other.owner.uid))
        });
        let Some(first) = first.filter(|first| is_used && first.owner.uid == owner.uid && place.is_of(vif))
        else {
            return PoolClaim::Refused;
        };
        let is_alone = holders.filter(|holder| rank(holder) == rank(first)).count() == 1;
        match (rank(first), &first.claim) {
            (_, HolderClaim::Possible) | ((1, Usage::Contradicted, _), _) => PoolClaim::Refused,
            ((1, Usage::Open | Usage::Elsewhere, _), _) if !is_alone => PoolClaim::Refused,
            ((1, Usage::Elsewhere, _) | (1, _, true), _) => PoolClaim::Late(VifPoolKey::clone(&place.key)),
            _ => PoolClaim::Held,
        }
    }

    /// Records that the pod with this UID no longer holds the VIF. Returns the sequence number of its hold; `None` if the
    /// pod did not hold the VIF.
    pub(super) fn end_hold(&mut self, id: &VifId, uid: &Uid) -> Option<Hold> {
        let holders = self.holders.get_mut(id)?;
        let position = holders.iter().position(|holder| holder.owner.uid == *uid)?;
        let VifHolder { hold, .. } = holders.swap_remove(position);
        if holders.is_empty() {
            self.holders.remove(id);
        }
        if let Some(ids) = self.by_owner.get_mut(uid) {
            ids.retain(|held| held != id);
            if ids.is_empty() {
                self.by_owner.remove(uid);
            }
        }
        Some(hold)
    }

    /// Removes from the pool of `key` a VIF that does not exist any more. The records of the pods that hold it stay.
    pub(super) fn lose(&mut self, key: &Arc<VifPoolKey>, id: &VifId) {
        if self.places.get(id).is_some_and(|place| place.key == *key) {
            self.places.remove(id);
        }
        if let Some(pool) = self.pools.get_mut(key) {
            pool.warm.lose(id);
        }
    }
}
