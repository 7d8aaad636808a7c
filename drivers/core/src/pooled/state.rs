//! What the pool knows: shelves of VIFs, who holds which, who waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::hand_out::HandOut;
use super::ports::{Hold, Ports};
use super::scarcity::Scarcity;
use crate::error::DriverError;
use crate::id::{Uid, VifId};
use crate::network::Subnet;
use crate::owner::Owner;
use crate::stock::{StockKey, StockList};
use crate::vif::Vif;
use crate::warm_pool::{Counts, MinMaxBatch, WarmPool};

/// What the pool knows, behind one lock that nobody holds while he waits.
#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) shelves: BTreeMap<Arc<StockKey>, Shelf>,
    /// Where a VIF has its place, whether or not it is out.
    pub(super) places: HashMap<VifId, Place>,
    /// Who holds a VIF: one pod, unless somebody made a mistake.
    pub(super) holders: HashMap<VifId, Vec<Holder>>,
    pub(super) by_owner: HashMap<Uid, Vec<VifId>>,
    pub(super) waiters: HashMap<Hold, Waiter>,
    /// What there is no more of, for many shelves at a time.
    pub(super) scarcity: Scarcity,
    last: Hold,
    /// When the first of the shelves has something to do by the passing of time alone.
    pub(super) due: Option<Duration>,
}

/// Where a VIF has its place.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) key: Arc<StockKey>,
    /// The VIF as the other world told of it.
    pub(super) told: Arc<Vif>,
}

impl Place {
    /// Whether a pod gives back the VIF that it was handed. Whoever may annotate a pod could change what the next one gets.
    /// What a VIF tells of its subnets and of its network is the cloud's to change, and is not compared.
    pub(super) fn is_of(&self, vif: &Vif) -> bool {
        let Vif { id, address, class, .. } = &*self.told;
        (id, address, class) == (&vif.id, &vif.address, &vif.class) && self.told.ips().eq(vif.ips())
    }
}

/// How far the pool is with what exists.
#[derive(Default)]
pub(super) enum Phase {
    /// Nothing is known.
    #[default]
    Unread,
    /// This exists; which of it is used is not known to its end.
    Read(StockList),
    /// All is known.
    Open,
}

/// The VIFs of one key.
pub(super) struct Shelf {
    pub(super) pool: WarmPool<Ports>,
    /// Those that are not out.
    pub(super) vifs: HashMap<VifId, Vif>,
    /// With what more are made; empty until somebody asks.
    pub(super) subnets: Vec<Subnet>,
    /// What went wrong last when more were made.
    pub(super) failure: Option<DriverError>,
    /// In how many looks in a row its node was not there.
    pub(super) absent: u8,
    /// When the passing of time alone gives it something to do.
    pub(super) due: Option<Duration>,
    /// When there was no more to be had for it last: a number that no earlier one is greater than. 0: never.
    pub(super) scanted: u64,
}

/// A pod that holds a VIF.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) hold: Hold,
    pub(super) owner: Arc<Owner>,
    /// When it was told first that the pod shows the VIF: a number that no earlier one is greater than. None: it never was.
    pub(super) shown: Option<u64>,
}

/// A request that waits for a VIF.
pub(super) struct Waiter {
    pub(super) owner: Arc<Owner>,
    pub(super) answer: oneshot::Sender<Result<HandOut, DriverError>>,
}

impl State {
    /// A hand-out that nobody had before.
    pub(super) fn next_hold(&mut self) -> Hold {
        self.last += 1;
        self.last
    }

    pub(super) fn shelf(
        &mut self,
        key: &Arc<StockKey>,
        policy: MinMaxBatch,
        cool_down: Duration,
    ) -> &mut Shelf {
        self.shelves.entry(Arc::clone(key)).or_insert_with(|| Shelf {
            pool: WarmPool::new(Arc::new(policy), cool_down),
            vifs: HashMap::new(),
            subnets: Vec::new(),
            failure: None,
            absent: 0,
            due: None,
            scanted: 0,
        })
    }

    /// `owner` holds the VIF.
    pub(super) fn hold(&mut self, id: &VifId, hold: Hold, owner: &Arc<Owner>) {
        self.holders.entry(id.clone()).or_default().push(Holder {
            hold,
            owner: Arc::clone(owner),
            shown: None,
        });
        self.by_owner.entry(owner.uid.clone()).or_default().push(id.clone());
    }

    /// The pod of that UID shows the VIF. Answers whether it was known to hold it.
    pub(super) fn shown(&mut self, id: &VifId, uid: &Uid) -> bool {
        let now = self.next_hold();
        let holders = self.holders.get_mut(id).into_iter().flatten();
        let holder = holders.into_iter().find(|holder| holder.owner.uid == *uid);
        holder.map(|holder| holder.shown.get_or_insert(now)).is_some()
    }

    /// Whether the pod of that UID shows a VIF that another one showed first.
    pub(super) fn is_contested(&self, uid: &Uid) -> bool {
        self.by_owner.get(uid).into_iter().flatten().any(|id| {
            let holders = || self.holders.get(id).into_iter().flatten();
            let own = holders().find(|holder| holder.owner.uid == *uid).and_then(|holder| holder.shown);
            own.is_some_and(|own| holders().filter_map(|holder| holder.shown).any(|other| other < own))
        })
    }

    /// The pod of that UID holds the VIF no more. Answers its hold, if it had one.
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

    /// The VIF does not exist any more.
    pub(super) fn lose(&mut self, key: &Arc<StockKey>, id: &VifId) {
        if self.places.get(id).is_some_and(|place| place.key == *key) {
            self.places.remove(id);
        }
        if let Some(shelf) = self.shelves.get_mut(key) {
            shelf.vifs.remove(id);
            shelf.pool.lose(id);
        }
    }

    /// Where all shelves stand together.
    pub(super) fn counts(&self, now: Duration) -> Counts {
        self.shelves.values().map(|shelf| shelf.pool.counts(now)).fold(Counts::default(), |sum, shelf| {
            Counts {
                used: sum.used + shelf.used,
                warm: sum.warm + shelf.warm,
                cooling: sum.cooling + shelf.cooling,
                waiting: sum.waiting + shelf.waiting,
                growing: sum.growing + shelf.growing,
                shrinking: sum.shrinking + shelf.shrinking,
                ..sum
            }
        })
    }
}
