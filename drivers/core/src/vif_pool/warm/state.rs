//! The state of the pool: VIFs by key, their holders, and the waiting requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::VifPoolPolicy;
use super::exhaustion::Exhaustion;
use crate::error::DriverError;
use crate::id::{SecurityGroupId, Uid, VifId};
use crate::network::Subnet;
use crate::owner::Owner;
use crate::pool::{Candidate, Kind, MinMaxBatch, WarmPool};
use crate::vif::Vif;
use crate::vif_pool::{PooledVifList, VifPoolKey};

/// VIFs, which are created one by one. Those with the required security groups are handed out first, then those that are
/// active; of the others the one that has been free the longest.
pub(super) enum Vifs {}

/// The number of a hand-out: a pod that requests a second VIF gets another one.
pub(super) type Hold = u64;

impl Kind for Vifs {
    type Group = VifId;
    type Item = VifId;
    /// The security groups, [sorted].
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

/// Returns security groups as they are compared.
pub(super) fn sorted(security_groups: &[SecurityGroupId]) -> Vec<SecurityGroupId> {
    security_groups.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// The state of the pool, behind one lock that is never held across an await.
#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) pools: BTreeMap<Arc<VifPoolKey>, KeyPool>,
    /// The VIFs of all keys, free or in use.
    pub(super) places: HashMap<VifId, Place>,
    /// The pods that hold a VIF: one, except after a fault.
    pub(super) holders: HashMap<VifId, Vec<Holder>>,
    /// The VIFs that a pod holds.
    pub(super) by_owner: HashMap<Uid, Vec<VifId>>,
    /// Exhausted resources that several keys share.
    pub(super) exhaustion: Exhaustion,
    /// The time of the next work that is due.
    pub(super) due: Option<Duration>,
    /// `true` if the existing VIFs may differ from the known ones and must be listed.
    pub(super) stale: bool,
    last: u64,
}

/// The startup phase of the pool.
#[derive(Default)]
pub(super) enum Phase {
    /// The existing VIFs are not known.
    #[default]
    Unlisted,
    /// These VIFs exist; the pods that use them are not all known.
    Listed(PooledVifList),
    /// All is known.
    Open,
}

/// The pool of one key.
pub(super) struct KeyPool {
    pub(super) warm: WarmPool<Vifs>,
    /// The waiting requests. Each is woken when it may take its VIF, or gets the reason why there is none.
    pub(super) waiters: HashMap<Hold, oneshot::Sender<Result<(), DriverError>>>,
    /// The subnets for new VIFs; empty until the first request.
    pub(super) subnets: Vec<Subnet>,
    /// The error of the last failed refill.
    pub(super) failure: Option<DriverError>,
    /// The number of consecutive checks that found its node missing.
    pub(super) absent: u8,
    /// The time of the next work that is due.
    pub(super) due: Option<Duration>,
    /// The number of its last refill that met an exhausted resource; 0 for none.
    pub(super) exhausted: u64,
}

/// A VIF of the pool.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) key: Arc<VifPoolKey>,
    /// The VIF as the driver returned it.
    pub(super) vif: Arc<Vif>,
}

impl Place {
    /// Returns `true` if a pod returns the VIF that it was given. Otherwise its annotation was changed, and must not affect the
    /// next pod. The properties of its subnets and its network may change in the cloud, and are not compared.
    pub(super) fn is_of(&self, vif: &Vif) -> bool {
        let Vif { id, address, class, .. } = &*self.vif;
        (id, address, class) == (&vif.id, &vif.address, &vif.class) && self.vif.ips().eq(vif.ips())
    }
}

/// A pod that holds a VIF.
#[derive(Clone)]
pub(super) struct Holder {
    pub(super) hold: Hold,
    pub(super) owner: Arc<Owner>,
    /// The number of the first event in which the pod lists the VIF; `None` before that.
    pub(super) shown: Option<u64>,
}

impl State {
    /// Returns a number that is larger than all before.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the pool of the key, which is created if there is none.
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

    /// Records that `owner` holds the VIF, and the event in which it listed it first.
    pub(super) fn hold(&mut self, id: &VifId, hold: Hold, owner: &Owner, shown: Option<u64>) {
        let holder = Holder { hold, owner: Arc::new(owner.clone()), shown };
        self.holders.entry(id.clone()).or_default().push(holder);
        self.by_owner.entry(owner.uid.clone()).or_default().push(id.clone());
    }

    /// Records that the pod lists the VIF. Returns `true` if it did not hold it before.
    pub(super) fn show(&mut self, id: &VifId, owner: &Owner) -> bool {
        let number = self.next_number();
        let mut holders = self.holders.get_mut(id).into_iter().flatten();
        let known = holders.find(|holder| holder.owner.uid == owner.uid);
        if let Some(holder) = known {
            holder.shown.get_or_insert(number);
            return false;
        }
        self.hold(id, number, owner, Some(number));
        true
    }

    /// Returns `true` if the pod of that UID lists a VIF that another one listed first.
    pub(super) fn is_contested(&self, uid: &Uid) -> bool {
        self.by_owner.get(uid).into_iter().flatten().any(|id| {
            let holders = self.holders.get(id).into_iter().flatten();
            let shown: Vec<_> =
                holders.filter_map(|holder| Some((holder.shown?, &holder.owner.uid))).collect();
            let first = shown.iter().min().map(|(_, first)| *first);
            first != Some(uid) && shown.iter().any(|(_, other)| *other == uid)
        })
    }

    /// Ends the hold of the pod of that UID, and returns it if there was one.
    pub(super) fn let_go(&mut self, id: &VifId, uid: &Uid) -> Option<Hold> {
        let holders = self.holders.get_mut(id)?;
        let position = holders.iter().position(|holder| holder.owner.uid == *uid)?;
        let Holder { hold, .. } = holders.swap_remove(position);
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

    /// Removes a VIF that does not exist any more.
    pub(super) fn lose(&mut self, key: &Arc<VifPoolKey>, id: &VifId) {
        if self.places.get(id).is_some_and(|place| place.key == *key) {
            self.places.remove(id);
        }
        if let Some(pool) = self.pools.get_mut(key) {
            pool.warm.lose(id);
        }
    }
}
