//! The VIFs that belong to pods, with which the annotations of pods are compared: everybody who may
//! change a pod can name the VIF of another pod in its annotation.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use dashmap::{DashMap, DashSet};
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Owned, Owner, PoolClaim, Uid, Vif, VifPoolKey};

use super::{VifError, VifHandler};

/// The VIFs that belong to pods. Each is stored as a hash, which has a random key so that other
/// users cannot predict it.
#[derive(Default)]
pub(super) struct VifClaims {
    /// The VIFs with an ownership mark of a pod, each with the UID of the pod.
    owned: DashSet<u64>,
    /// The VIFs whose ownership mark named no pod when the marks were read, each with the pod that
    /// uses it. A pool that existed before has handed them out.
    pooled: DashMap<u64, Option<Uid>>,
    hasher: RandomState,
}

impl VifClaims {
    /// Records that the VIF belongs to the pod with this UID.
    pub(super) fn add(&self, uid: &Uid, vif: &Vif) {
        self.owned.insert(self.hash(Some(uid), vif));
    }

    /// Records that the VIF was released.
    pub(super) fn remove(&self, uid: &Uid, vif: &Vif) {
        self.owned.remove(&self.hash(Some(uid), vif));
    }

    /// Replaces all claims by those of a list of all VIFs.
    pub(super) fn recover<'a>(&self, marks: impl IntoIterator<Item = &'a Owned<Vif>>) {
        self.owned.clear();
        self.pooled.clear();
        for Owned { owner, thing } in marks {
            match owner {
                Some(owner) => self.add(&owner.uid, thing),
                None => drop(self.pooled.insert(self.hash(None, thing), None)),
            }
        }
    }

    /// Returns `true` if the VIF belongs to the pod: it bears the pod's mark, or it comes from a
    /// former pool and no other pod uses it.
    fn contains(&self, pod: &Pod, uid: &Uid, vif: &Vif) -> bool {
        if self.owned.contains(&self.hash(Some(uid), vif)) {
            return true;
        }
        let Some(mut user) = self.pooled.get_mut(&self.hash(None, vif)) else { return false };
        if user.is_none() || has_address(pod, vif) {
            *user = Some(uid.clone());
        }
        user.as_ref() == Some(uid)
    }

    fn hash(&self, uid: Option<&Uid>, vif: &Vif) -> u64 {
        self.hasher.hash_one((uid, format!("{:?}", vif.binding())))
    }
}

/// Returns `true` if the VIF has the IP address of the pod.
fn has_address(pod: &Pod, vif: &Vif) -> bool {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
    ip.is_some_and(|ip: IpAddr| vif.ips().any(|address| address == ip))
}

impl VifHandler {
    /// Checks that the published VIFs belong to the pod. The marks of the pod are read only for a VIF
    /// that neither this process, nor the list of all marks at its start, nor the pool knows.
    pub(super) async fn verify(&self, pod: &Pod, owner: &Owner, published: &[Vif]) -> Result<(), VifError> {
        for vif in published {
            match self.drivers.pool.claim(owner, vif) {
                PoolClaim::Held => continue,
                PoolClaim::Refused => return Err(VifError::Shared),
                PoolClaim::NotPooled if self.claims.contains(pod, &owner.uid, vif) => continue,
                PoolClaim::Late(key) if self.is_placed_at(pod, owner, &key).await? => continue,
                PoolClaim::Late(_) => return Err(VifError::Foreign(vif.id.clone())),
                PoolClaim::NotPooled => {}
            }
            self.marked_vifs(owner).await?;
            if !self.claims.contains(pod, &owner.uid, vif) {
                return Err(VifError::Foreign(vif.id.clone()));
            }
        }
        Ok(())
    }

    /// Returns `true` if the pool would give the pod a VIF with this key: one on its node, in its
    /// project and its subnets.
    async fn is_placed_at(&self, pod: &Pod, owner: &Owner, key: &VifPoolKey) -> Result<bool, VifError> {
        let request = self.default_request(pod, owner).await?;
        let is_host = key.host == request.node_name
            || request.host_ip.is_some_and(|host_ip| key.host == host_ip.to_string());
        Ok(is_host && VifPoolKey::new(&*key.host, &request) == *key)
    }
}
