//! Assigns the security groups of pods to their VIFs.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{DriverError, Reason, SecurityGroupId, Uid, VifId};
use tokio::sync::Mutex;

use super::PolicyDrivers;
use super::error::PolicyError;
use super::index::PolicyIndex;
use crate::step_error::{StepContext, StepError};
use crate::vif::VifClaims;

/// The name of the step that lists the groups of all VIFs, for error messages.
const LIST_STEP: &str = "list the security groups of the VIFs";

/// The store of the security groups of all VIFs, which also assigns the groups of pods to their VIFs.
pub(super) struct VifGroups {
    drivers: PolicyDrivers,
    index: Arc<PolicyIndex>,
    /// The VIFs that belong to each pod. Only these get groups, because an annotation may name any VIF.
    claims: Arc<VifClaims>,
    /// The security groups of each VIF, published or not, as last observed.
    assigned: DashMap<VifId, AssignedGroups>,
    /// The result of the last list of the groups of all VIFs. It is locked while they are listed.
    listed: Mutex<LastList>,
}

/// The result of the last list of the security groups of all VIFs. Calls that began before the list share it.
#[derive(Default)]
struct LastList {
    /// The logical time, from `PolicyIndex::next_tick`, at which the list began or, if it failed, ended.
    tick: u64,
    /// The error of the list; `None` if it succeeded.
    error: Option<DriverError>,
}

/// The security groups of a VIF, as last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AssignedGroups {
    /// The ids of the security groups; `None` while the outcome of a driver call is unknown.
    groups: Option<Vec<SecurityGroupId>>,
    /// The logical time, from `PolicyIndex::next_tick`, at which the groups were observed or became unknown.
    tick: u64,
}

impl VifGroups {
    /// Creates the store of the security groups of VIFs, at first empty.
    pub(super) fn new(drivers: PolicyDrivers, claims: Arc<VifClaims>, index: Arc<PolicyIndex>) -> Self {
        Self { drivers, index, claims, assigned: DashMap::new(), listed: Mutex::default() }
    }

    /// Assigns the security groups of a pod to its published VIFs. Does nothing if policies do not apply to the
    /// pod, or if its VIFs are not known to belong to it. Returns an error if one of the groups does not exist yet.
    pub(super) async fn reconcile(&self, pod: &Uid) -> Result<(), PolicyError> {
        if self.claims.is_checked(pod) {
            self.index.forget_annotation(pod);
        }
        let Some(vifs) = self.claims.verified(pod) else { return Ok(()) };
        let Some(groups) = self.index.pod_groups(pod)? else { return Ok(()) };
        for vif in vifs {
            if self.observed(pod, &vif).as_ref() != Some(&groups) {
                self.assign(&vif, &groups).await?;
            }
        }
        Ok(())
    }

    /// Replaces the security groups of a VIF through the driver, and stores the result. A VIF that
    /// no longer exists is not an error.
    async fn assign(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), StepError> {
        // Recorded before the call: if it is interrupted, the next attempt repeats it.
        self.record(vif, None);
        match self.drivers.policy.set_vif_groups(vif, groups).await {
            Ok(()) => self.record(vif, Some(groups.to_vec())),
            // The VIF was released or deleted.
            Err(error) if error.reason() == Reason::NotFound => drop(self.assigned.remove(vif)),
            failed => failed.step(format!("set the security groups of the VIF {vif}"))?,
        }
        Ok(())
    }

    /// Lists the security groups of all VIFs and stores them. Returns `true` if the list differs from
    /// the stored groups of a VIF that a pod publishes. Concurrent calls share a list or its error; only
    /// one of them returns its differences.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let called = self.index.next_tick();
        let mut last = self.listed.lock().await;
        if last.tick > called {
            return last.error.clone().map_or(Ok(false), Err).step(LIST_STEP).map_err(PolicyError::from);
        }
        let tick = self.index.next_tick();
        let listed = self.drivers.policy.vif_groups().await;
        if let Err(error) = &listed {
            *last = LastList { tick: self.index.next_tick(), error: Some(error.clone()) };
        }
        let listed = listed.step(LIST_STEP)?;
        let listed: HashMap<_, _> = listed.into_iter().map(|listed| (listed.vif, listed.groups)).collect();
        self.assigned.retain(|vif, assigned| assigned.tick > tick || listed.contains_key(vif));
        let pods = self.claims.pods();
        let mut changed = false;
        for (vif, groups) in listed {
            let observed_at = self.assigned.get(&vif).map(|assigned| assigned.tick);
            if observed_at.is_some_and(|observed_at| observed_at > tick) {
                continue;
            }
            // A VIF without a pod needs no groups; a VIF without an observation is handled with its
            // pod's own event.
            changed |= pods.get(&vif).is_some_and(|pod| match self.observed(pod, &vif) {
                Some(observed) => observed != groups,
                None => observed_at.is_some(),
            });
            self.assigned.insert(vif, AssignedGroups { groups: Some(groups), tick });
        }
        *last = LastList { tick, error: None };
        Ok(changed)
    }

    /// Removes security groups from VIFs that no pod publishes: free VIFs of a pool, and leaked VIFs. A VIF is left alone while it is
    /// not known if it belongs to the pod whose annotation names it, because a running pod would lose traffic. A failure does not keep
    /// the other VIFs from being handled; the first error is returned.
    pub(super) async fn remove_from_unused(&self, groups: &[SecurityGroupId]) -> Result<(), PolicyError> {
        if self.refresh().await? {
            self.index.mark_all_changed();
        }
        let mut removed = Ok(());
        let unchecked = self.index.unchecked_vifs(|pod| self.claims.is_checked(pod));
        let entries = self.assigned.iter().map(|entry| (entry.key().clone(), entry.value().groups.clone()));
        for (vif, assigned) in entries.collect::<Vec<_>>() {
            let assigned = assigned.unwrap_or_default();
            let kept: Vec<_> = assigned.iter().filter(|group| !groups.contains(group)).cloned().collect();
            // A pod may have got the VIF since it was listed.
            let is_published = || unchecked.contains(&vif) || self.claims.pod_of(&vif).is_some();
            if kept.len() == assigned.len() || is_published() {
                continue;
            }
            removed = removed.and(self.assign(&vif, &kept).await.map_err(PolicyError::from));
            if let Some(pod) = self.claims.pod_of(&vif) {
                // A pod got the VIF during the call, so the order of the two assignments is
                // unknown.
                self.record(&vif, None);
                self.index.mark_changed(&pod);
            }
        }
        removed
    }

    /// Returns the security groups of a VIF of `pod`: the last observed ones or, if groups were chosen for new VIFs of the pod
    /// after that observation, the chosen ones. Returns `None` if the groups are unknown.
    fn observed(&self, pod: &Uid, vif: &VifId) -> Option<Vec<SecurityGroupId>> {
        let assigned = self.assigned.get(vif).map(|assigned| assigned.clone());
        let tick = assigned.as_ref().map_or(0, |assigned| assigned.tick);
        self.index.assigned_since(pod, tick).or_else(|| assigned?.groups)
    }

    /// Stores the security groups of a VIF, with `None` for unknown groups, and notifies the VIF
    /// pool of the change.
    fn record(&self, vif: &VifId, groups: Option<Vec<SecurityGroupId>>) {
        self.drivers.pool.security_groups_changed(vif, groups.as_deref());
        self.assigned.insert(vif.clone(), AssignedGroups { groups, tick: self.index.next_tick() });
    }
}
