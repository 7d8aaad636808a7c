//! What guards the VIFs of pods, as far as this process knows, and how it becomes what ought to.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use staffetta_driver::policy::PolicyBook;
use staffetta_driver::{Life, Reason, SecurityGroupId, Uid, VifId};
use staffetta_handler::{Event, Index, Message};

use super::PolicyDrivers;
use super::error::PolicyError;
use crate::os_vif::{KURYR_VIF, PodState};

/// The VIFs of pods and what guards them.
pub(super) struct Guards {
    drivers: PolicyDrivers,
    book: Arc<PolicyBook>,
    /// The VIFs that pods show.
    shown: DashMap<Uid, Vec<VifId>>,
    guarded: DashMap<VifId, Guard>,
}

/// What guards a VIF.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guard {
    /// None when a call was made of which it is not known what came of it.
    groups: Option<Vec<SecurityGroupId>>,
    /// When that was so.
    tick: u64,
}

impl Guards {
    pub(super) fn new(drivers: PolicyDrivers, book: Arc<PolicyBook>) -> Self {
        Self { drivers, book, shown: DashMap::new(), guarded: DashMap::new() }
    }

    /// Puts the right groups in front of the VIFs of a pod.
    pub(super) async fn settle(&self, pod: &Uid) -> Result<(), PolicyError> {
        let Some(vifs) = self.shown.get(pod).map(|vifs| vifs.clone()) else { return Ok(()) };
        let Some(wanted) = self.book.guards(pod)? else { return Ok(()) };
        for vif in vifs {
            if self.now(pod, &vif).as_ref() == Some(&wanted) {
                continue;
            }
            self.guard(&vif, &wanted).await?;
        }
        Ok(())
    }

    /// Puts these groups in front of a VIF.
    async fn guard(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), PolicyError> {
        // Entered before the call: whatever ends it, the next attempt makes it again.
        self.note(vif, None);
        match self.drivers.policy.guard(vif, groups).await {
            Ok(()) => self.note(vif, Some(groups.to_vec())),
            // It is released, or somebody took it away: either way there is nobody to guard.
            Err(error) if error.reason() == Reason::NotFound => drop(self.guarded.remove(vif)),
            Err(source) => return Err(PolicyError::Guard { vif: vif.clone(), source }),
        }
        Ok(())
    }

    /// Reads what guards the VIFs. Answers whether something guards a pod that is otherwise than it was known.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let tick = self.book.tick();
        let listed = self.drivers.policy.guards().await.map_err(PolicyError::Marks)?;
        let listed: HashMap<VifId, Vec<SecurityGroupId>> =
            listed.into_iter().map(|guarded| (guarded.vif, guarded.groups)).collect();
        self.guarded.retain(|vif, guard| guard.tick > tick || listed.contains_key(vif));
        let bearers: HashMap<VifId, Uid> = self
            .shown
            .iter()
            .flat_map(|vifs| {
                vifs.value().iter().map(|vif| (vif.clone(), vifs.key().clone())).collect::<Vec<_>>()
            })
            .collect();
        let mut drifted = false;
        for (vif, groups) in listed {
            let known_since = self.guarded.get(&vif).map(|guard| guard.tick);
            if known_since.is_some_and(|since| since > tick) {
                continue;
            }
            // One that no pod shows is nobody's, and of one that was never looked at its pod's own event will see to it.
            drifted |= bearers.get(&vif).is_some_and(|pod| match self.now(pod, &vif) {
                Some(known) => known != groups,
                None => known_since.is_some(),
            });
            self.guarded.insert(vif, Guard { groups: Some(groups), tick });
        }
        Ok(drifted)
    }

    /// Takes groups away from VIFs that no pod shows: those in stock, and those that pods left behind. Each for itself: the
    /// answer is the first failure.
    pub(super) async fn strip(&self, going: &[SecurityGroupId]) -> Result<(), PolicyError> {
        if self.refresh().await? {
            self.book.all_due();
        }
        let mut stripped = Ok(());
        let entries = self.guarded.iter().map(|entry| (entry.key().clone(), entry.value().groups.clone()));
        for (vif, groups) in entries.collect::<Vec<_>>() {
            let groups = groups.unwrap_or_default();
            let left: Vec<_> = groups.iter().filter(|group| !going.contains(group)).cloned().collect();
            // A pod may have got it since it was listed.
            if left.len() == groups.len() || self.bearer(&vif).is_some() {
                continue;
            }
            stripped = stripped.and(self.guard(&vif, &left).await);
            if let Some(pod) = self.bearer(&vif) {
                // It got it during the call, and was guarded by then, perhaps before the call and perhaps after it.
                self.note(&vif, None);
                self.book.moved(&pod);
            }
        }
        stripped
    }

    /// The pod that shows a VIF, if one does.
    fn bearer(&self, vif: &VifId) -> Option<Uid> {
        self.shown.iter().find(|vifs| vifs.value().contains(vif)).map(|vifs| vifs.key().clone())
    }

    /// What guards a VIF now: what was seen, or said when it was made, whatever is newer.
    fn now(&self, pod: &Uid, vif: &VifId) -> Option<Vec<SecurityGroupId>> {
        let seen = self.guarded.get(vif).map(|guard| guard.clone());
        let tick = seen.as_ref().map_or(0, |guard| guard.tick);
        self.book.born_since(pod, tick).or_else(|| seen?.groups)
    }

    fn note(&self, vif: &VifId, groups: Option<Vec<SecurityGroupId>>) {
        self.drivers.pool.regrouped(vif, groups.as_deref());
        self.guarded.insert(vif.clone(), Guard { groups, tick: self.book.tick() });
    }

    fn forget(&self, pod: &Uid) {
        if let Some((_, vifs)) = self.shown.remove(pod) {
            for vif in vifs {
                self.guarded.remove(&vif);
            }
        }
    }
}

impl Index<Pod> for Guards {
    fn apply(&self, event: &Event<Pod>) {
        match event {
            Event::Added(pod) | Event::Modified(pod) => {
                self.book.pod_present(pod);
                // The VIF of a pod that is over is released. What cannot be read is told by the handler `vif`, at the pod.
                let lives = Life::of(pod).has_network();
                let text = pod.annotations().get(KURYR_VIF).filter(|_| lives);
                let state = text.and_then(|text| PodState::read(text).ok());
                let vifs: Vec<_> = state.iter().flat_map(PodState::vifs).map(|vif| vif.id.clone()).collect();
                let uid: Uid = event.uid().into();
                if vifs.is_empty() {
                    self.shown.remove(&uid);
                } else {
                    self.shown.insert(uid, vifs);
                }
            }
            Event::Deleted(_) => {
                let uid: Uid = event.uid().into();
                self.book.pod_gone(&uid);
                self.forget(&uid);
            }
        }
    }
}
