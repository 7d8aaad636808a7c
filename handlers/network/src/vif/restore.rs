//! Writes a lost annotation again: one that was removed, or that became unreadable, although the pod has VIFs.

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Owner, Uid, Vif, VifRequest};
use staffetta_handler::Identity;

use super::decide::{annotation, has_finalizer, is_replaceable};
use super::{VifError, VifHandler};
use crate::annotation::RESTORED;
use crate::os_vif::{KURYR_VIF, PodState};

impl VifHandler {
    /// Returns `true` if this process knows that the pod with this UID has VIFs, whatever its annotation shows.
    pub(super) fn is_known(&self, uid: &Uid) -> bool {
        self.claims.is_checked(uid) || self.drivers.pool.holds_vifs(uid)
    }

    /// Returns `true` unless it is certain that no VIF of the pod was ever published.
    pub(super) fn may_use_vifs(&self, pod: &Pod) -> bool {
        let uid = Owner::of(&pod.metadata).uid;
        !is_replaceable(pod)
            || has_finalizer(pod)
            || annotation(pod).is_some()
            || self.claims.is_checked(&uid)
    }

    /// Writes those of `vifs`, which have ownership marks of the pod or are held by it, into the annotation that belong there, and records
    /// an Event if the annotation was lost. If that is impossible, releases the VIFs of a pod that does not use them yet and returns
    /// `false`; fails with [`VifError::Lost`] for any other pod.
    pub(super) async fn restore(&self, pod: &Pod, owner: &Owner, vifs: Vec<Vif>) -> Result<bool, VifError> {
        // The marks that were read at the start do not tell what the pool holds for the pod.
        let is_pooled = self.drivers.pool.holds_vifs(&owner.uid);
        let vifs = if is_pooled { self.marked_vifs(owner).await? } else { vifs };
        let (own, state) = self.assigned(pod, owner, vifs).await?;
        let is_lost = self.may_use_vifs(pod);
        let state = match state {
            Some(state) => state,
            None if own.is_empty() && is_replaceable(pod) && !self.installation.selects(pod) => {
                return self.withdraw(pod).await.map(|()| true);
            }
            // Its VIFs went to others.
            None if own.is_empty() && is_replaceable(pod) => self.request(pod, owner).await?,
            None if is_lost => return Err(VifError::Lost),
            None => {
                self.release(owner, &own).await?;
                self.records.remove(&owner.uid);
                return Ok(false);
            }
        };
        if self.publish(pod, owner, &state).await? && is_lost {
            let what = if annotation(pod).is_some() { "unreadable" } else { "missing" };
            let vifs = state.vifs().map(|vif| vif.id.to_string()).collect::<Vec<_>>().join(", ");
            let text = format!(
                "the annotation {KURYR_VIF} was {what}; it was written again with the VIF {vifs}, which the pod has"
            );
            self.notices.warn(Identity::of_object(pod), RESTORED, text);
        }
        Ok(true)
    }

    /// Returns those of `vifs` that belong to the pod alone, and assigns them to the interfaces of the pod: as its annotation did before or
    /// else, for a pod with additional networks, by their subnets. The default VIF is the one with the pod's address. `None` if an
    /// interface gets no VIF, or if several are possible.
    pub(super) async fn assigned(
        &self,
        pod: &Pod,
        owner: &Owner,
        vifs: Vec<Vif>,
    ) -> Result<(Vec<Vif>, Option<PodState>), VifError> {
        let mut own = Vec::new();
        for vif in vifs {
            match self.is_of(pod, owner, &vif).await {
                Ok(true) => own.push(vif),
                Ok(false) | Err(VifError::Shared | VifError::Foreign(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let is_own = |state: &PodState| state.vifs().all(|vif| own.iter().any(|own| own.id == vif.id));
        if let Some(before) = self.several.get(&owner.uid).filter(is_own) {
            return Ok((own, Some(before)));
        }
        let addressed = own.iter().find(|vif| vif.has_address_of(pod));
        if own.is_empty() || !self.requests_several(pod) {
            let default_vif = addressed.or(own.first()).cloned();
            return Ok((own, default_vif.map(PodState::new)));
        }
        let (interfaces, requests) = self.placed_requests(pod, owner).await?;
        let only = |request: &VifRequest| {
            let mut fitting = own.iter().filter(|vif| fits(vif, request));
            fitting.next().filter(|_| fitting.next().is_none()).cloned()
        };
        let default_vif = addressed.cloned().or_else(|| only(&requests[0]));
        let additional: Option<Vec<Vif>> = requests[1..].iter().map(only).collect();
        let state = default_vif.zip(additional).map(|(default_vif, additional)| PodState {
            default_vif,
            additional_vifs: interfaces.into_iter().zip(additional).collect(),
        });
        Ok((own, state))
    }
}

/// Returns `true` if the VIF has addresses in just the subnets of the request.
fn fits(vif: &Vif, request: &VifRequest) -> bool {
    let is_in = |cidr| vif.subnets.iter().any(|subnet| subnet.cidr == cidr);
    let network = request.subnets.first().map(|subnet| &subnet.network.id);
    network == Some(&vif.network.id)
        && vif.subnets.len() == request.subnets.len()
        && request.subnets.iter().all(|subnet| is_in(subnet.cidr))
}
