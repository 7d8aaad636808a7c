//! The living pods, and the VIFs that they may use although nothing names them: the pool did not hand them out to the pods, and the
//! annotations of the pods do not contain them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_driver::{Owner, PodLifecycle, Uid, Vif, VifId, VifPoolKey, addresses_of};

use super::state::{Hold, HolderClaim, Place, Usage, VifPoolState};

/// A living pod, as far as that tells which VIFs it may use although its annotation does not name them.
#[derive(Clone, PartialEq)]
pub(super) struct LivingPod {
    owner: Arc<Owner>,
    created: Option<Time>,
    /// The name of the pod's node and its addresses, one of which is [`VifPoolKey::host`].
    hosts: Vec<String>,
    /// The addresses in the status of the pod.
    addresses: Vec<IpAddr>,
    /// `true` if the pod got VIFs, and its annotation does not tell any more which.
    is_lost: bool,
}

impl LivingPod {
    /// Returns what `pod` tells; `None` if it needs no VIF (any more), or has no node yet.
    fn of(pod: &Pod, is_lost: bool) -> Option<Self> {
        let node = pod.spec.as_ref()?.node_name.clone().filter(|_| PodLifecycle::of(pod).has_network())?;
        let status = pod.status.as_ref();
        let others = status.into_iter().flat_map(|status| status.host_ips.iter().flatten());
        let hosts = status.and_then(|status| status.host_ip.clone()).into_iter();
        Some(Self {
            owner: Arc::new(Owner::of(&pod.metadata)),
            created: pod.metadata.creation_timestamp.clone(),
            hosts: hosts.chain(others.map(|host| host.ip.clone())).chain([node]).collect(),
            addresses: addresses_of(pod),
            is_lost,
        })
    }
}

/// Returns `true` if the VIF has one of the addresses, or if there are none.
fn may_have(addresses: &[IpAddr], vif: &Vif) -> bool {
    addresses.is_empty() || vif.ips().any(|ip| addresses.contains(&ip))
}

impl VifPoolState {
    /// Records what an event tells of a living pod. Returns `true` if that is new.
    pub(super) fn record_pod(&mut self, pod: &Pod, is_lost: bool) -> bool {
        let uid = Owner::of(&pod.metadata).uid;
        let Some(living) = LivingPod::of(pod, is_lost) else {
            self.pods.remove(&uid);
            return false;
        };
        let is_new = self.pods.insert(uid.clone(), living.clone()).as_ref() != Some(&living);
        // What an annotation named before, and the pod does not use, is worth less than what another one names now.
        for id in self.by_owner.get(&uid).cloned().into_iter().flatten().filter(|_| is_lost) {
            if self.places.get(&id).is_some_and(|place| self.usage(&uid, place) == Usage::Confirmed) {
                continue;
            }
            let holders = self.holders.get_mut(&id).into_iter().flatten();
            for holder in holders.filter(|holder| holder.owner.uid == uid) {
                if let HolderClaim::Shown { is_late, .. } = &mut holder.claim {
                    *is_late = true;
                }
            }
        }
        is_new
    }

    /// Returns the evidence in the status of the pod with this UID for a VIF of the pool. The addresses of the VIF are those in the cloud, not
    /// those in the annotation.
    pub(super) fn usage(&self, uid: &Uid, place: &Place) -> Usage {
        let Some(pod) = self.pods.get(uid) else { return Usage::Elsewhere };
        match pod.addresses.is_empty() {
            true if pod.hosts.contains(&place.key.host) => Usage::Open,
            true => Usage::Elsewhere,
            false if may_have(&pod.addresses, &place.vif) => Usage::Confirmed,
            false => Usage::Contradicted,
        }
    }

    /// Returns the addresses of a living pod that no VIF has which it is known to hold; empty if it has no address yet, and got a VIF
    /// that nothing names. `None` if it uses no other VIFs than those.
    fn unaccounted(&self, pod: &LivingPod) -> Option<Vec<IpAddr>> {
        let held = self.held_by(&pod.owner.uid);
        if pod.addresses.is_empty() {
            return (pod.is_lost && held.is_empty()).then(Vec::new);
        }
        let held: Vec<_> =
            held.iter().filter_map(|id| self.places.get(id)).flat_map(|place| place.vif.ips()).collect();
        let unaccounted: Vec<_> = pod.addresses.iter().copied().filter(|ip| !held.contains(ip)).collect();
        (!unaccounted.is_empty()).then_some(unaccounted)
    }

    /// Returns `true` if a pod holds the VIF, or may use it although nothing names it.
    pub(super) fn is_needed(&self, key: &VifPoolKey, vif: &Vif) -> bool {
        let may_use = |pod: &LivingPod| {
            pod.hosts.contains(&key.host)
                && self.unaccounted(pod).is_some_and(|addresses| may_have(&addresses, vif))
        };
        self.holders.contains_key(&vif.id) || self.pods.values().any(may_use)
    }

    /// Records that living pods, or only the one with the UID `only`, hold the VIFs of their nodes that they may use although nothing names
    /// them: those with an [unaccounted](Self::unaccounted) address or, for a pod without addresses, all that no pod holds. `is_late`
    /// is `false` at the start of the pool. Returns these VIFs.
    pub(super) fn record_unnamed(&mut self, only: Option<&Uid>, is_late: bool) -> Vec<VifId> {
        let mut by_host: HashMap<&str, Vec<(&LivingPod, Vec<IpAddr>)>> = HashMap::new();
        for pod in self.pods.values().filter(|pod| only.is_none_or(|uid| pod.owner.uid == *uid)) {
            let Some(addresses) = self.unaccounted(pod) else { continue };
            pod.hosts.iter().for_each(|host| by_host.entry(host).or_default().push((pod, addresses.clone())));
        }
        let mut found = Vec::new();
        for (id, Place { key, vif }) in self.places.iter().filter(|_| !by_host.is_empty()) {
            for (pod, addresses) in by_host.get(&*key.host).into_iter().flatten() {
                if may_have(addresses, vif) && !(addresses.is_empty() && self.holders.contains_key(id)) {
                    found.push((id.clone(), LivingPod::clone(pod)));
                }
            }
        }
        for (id, LivingPod { owner, created, addresses, .. }) in &found {
            let claim = HolderClaim::Shown { is_late, created: created.clone() };
            let claim = if addresses.is_empty() { HolderClaim::Possible } else { claim };
            let mut holders = self.holders.get_mut(id).into_iter().flatten();
            if let Some(holder) = holders.find(|holder| holder.owner.uid == owner.uid) {
                holder.claim = claim;
            } else {
                let number = self.next_number();
                self.hold(id, number, owner, claim);
            }
        }
        found.into_iter().map(|(id, _)| id).collect()
    }

    /// Ends the holds of the pod that were only possible. Returns them.
    pub(super) fn end_possible(&mut self, uid: &Uid) -> Vec<(Hold, VifId)> {
        let known = self.held_by(uid);
        let all = self.by_owner.get(uid).cloned().unwrap_or_default().into_iter();
        all.filter(|id| !known.contains(id)).filter_map(|id| Some((self.end_hold(&id, uid)?, id))).collect()
    }
}
