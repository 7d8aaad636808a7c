//! What guards the VIFs of pods, as far as this process knows, and how it becomes what ought to.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use staffetta_driver::policy::PolicyBook;
use staffetta_driver::{NetworkPolicyDriver, Reason, SecurityGroupId, Uid, VifId};
use staffetta_handler::{Event, Index, Message};

use super::error::PolicyError;
use crate::os_vif::{KURYR_VIF, PodState};
use crate::vif::Life;

/// The VIFs of pods and what guards them.
pub(super) struct Guards {
    driver: Arc<dyn NetworkPolicyDriver>,
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
    pub(super) fn new(driver: Arc<dyn NetworkPolicyDriver>, book: Arc<PolicyBook>) -> Self {
        Self { driver, book, shown: DashMap::new(), guarded: DashMap::new() }
    }

    /// Puts the right groups in front of the VIFs of a pod.
    pub(super) async fn settle(&self, pod: &Uid) -> Result<(), PolicyError> {
        let Some(vifs) = self.shown.get(pod).map(|vifs| vifs.clone()) else { return Ok(()) };
        let Some(wanted) = self.book.guards(pod)? else { return Ok(()) };
        for vif in vifs {
            if self.now(pod, &vif).as_ref() == Some(&wanted) {
                continue;
            }
            // Entered before the call: whatever ends it, the next attempt makes it again.
            self.note(&vif, None);
            match self.driver.guard(&vif, &wanted).await {
                Ok(()) => self.note(&vif, Some(wanted.clone())),
                // It is released, or somebody took it away: either way there is nobody to guard.
                Err(error) if error.reason() == Reason::NotFound => drop(self.guarded.remove(&vif)),
                Err(source) => return Err(PolicyError::Guard { vif, source }),
            }
        }
        Ok(())
    }

    /// Reads what guards the VIFs. Answers whether something is otherwise than it was known.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let tick = self.book.tick();
        let listed = self.driver.guards().await.map_err(PolicyError::Marks)?;
        let listed: HashMap<VifId, Vec<SecurityGroupId>> =
            listed.into_iter().map(|guarded| (guarded.vif, guarded.groups)).collect();
        self.guarded.retain(|vif, guard| guard.tick > tick || listed.contains_key(vif));
        let mut drifted = false;
        for (vif, groups) in listed {
            let newer = self.guarded.get(&vif).map(|guard| guard.clone());
            if newer.as_ref().is_some_and(|guard| guard.tick > tick) {
                continue;
            }
            let guard = Guard { groups: Some(groups), tick };
            drifted |= newer.is_none_or(|known| known.groups != guard.groups);
            self.guarded.insert(vif, guard);
        }
        Ok(drifted)
    }

    /// Takes groups away from VIFs that no pod shows: those in stock, and those that pods left behind.
    pub(super) async fn strip(&self, going: &[SecurityGroupId]) -> Result<(), PolicyError> {
        self.refresh().await?;
        let shown: BTreeSet<VifId> = self.shown.iter().flat_map(|vifs| vifs.value().clone()).collect();
        let entries = self.guarded.iter().map(|entry| (entry.key().clone(), entry.value().groups.clone()));
        let idle: Vec<_> = entries.filter(|(vif, _)| !shown.contains(vif)).collect();
        for (vif, groups) in idle {
            let groups = groups.unwrap_or_default();
            let left: Vec<_> = groups.iter().filter(|group| !going.contains(group)).cloned().collect();
            if left.len() == groups.len() {
                continue;
            }
            self.note(&vif, None);
            match self.driver.guard(&vif, &left).await {
                Ok(()) => self.note(&vif, Some(left)),
                Err(error) if error.reason() == Reason::NotFound => drop(self.guarded.remove(&vif)),
                Err(source) => return Err(PolicyError::Guard { vif, source }),
            }
        }
        Ok(())
    }

    /// What guards a VIF now: what was seen, or said when it was made, whatever is newer.
    fn now(&self, pod: &Uid, vif: &VifId) -> Option<Vec<SecurityGroupId>> {
        let seen = self.guarded.get(vif).map(|guard| guard.clone());
        let tick = seen.as_ref().map_or(0, |guard| guard.tick);
        self.book.born_since(pod, tick).or_else(|| seen?.groups)
    }

    fn note(&self, vif: &VifId, groups: Option<Vec<SecurityGroupId>>) {
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
                let over = matches!(Life::of(pod), Life::Over { .. } | Life::HostNetwork);
                let text = pod.annotations().get(KURYR_VIF).filter(|_| !over);
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
