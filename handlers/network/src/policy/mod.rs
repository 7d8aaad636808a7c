//! The handler `policy`: translates network policies into security groups and assigns them to the
//! VIFs of pods.
//!
//! The watches feed the [`PolicyIndex`], which computes the desired groups from policies, pods,
//! namespaces and nodes. An event of a policy reconciles the policy's groups and their rules. An
//! event of a pod reconciles the groups of the pod's VIFs. If a change of another object affects a
//! pod or a policy, a trigger is sent to the queue of that pod or policy. Every reconciliation
//! compares the desired state with the observed one and is idempotent.
//!
//! The handler writes nothing to the Kubernetes API. It recognizes its security groups by their
//! ownership marks, which the driver sets.

mod driver;
mod error;
mod groups;
mod index;
mod recheck;
mod vif_groups;

use std::any::TypeId;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::{
    NamespaceObserver, NetworkPolicyDriver, NetworkPolicyObserver, Owner, Uid, VifPoolDriver,
};
use staffetta_handler::{
    Action, Event, GarbageCollector, HandlerError, Identity, OrderingKey, Recorder, Registration,
    ResourceEventHandler, Tombstone, Trigger, TriggerHandler, causes,
};
use tracing::warn;

use self::groups::{GroupStore, RemainingGroup};
use self::index::DesiredGroup;
use self::recheck::IndexSource;
use self::vif_groups::VifGroups;
use crate::notices::Notices;
use crate::observers::{observe_namespaces, observe_policies};
use crate::owners::identities;
use crate::vif::VifClaims;

pub use self::driver::PolicySecurityGroups;
pub use self::error::PolicyError;
pub use self::index::{AlwaysAllowed, GroupNotReady, PolicyIndex};
pub use self::recheck::PolicyRecheck;

/// The reason of the Event for a policy with invalid or inapplicable parts, which allow nothing.
pub(crate) const INCOMPLETE: &str = "PolicyIncomplete";

/// The drivers of the handler `policy`.
#[derive(Clone)]
pub struct PolicyDrivers {
    /// The driver that manages security groups and assigns them to VIFs.
    pub policy: Arc<dyn NetworkPolicyDriver>,
    /// The VIF pool. It is notified of the security groups that a VIF gets, because it may reuse
    /// the VIF for another pod.
    pub pool: Arc<dyn VifPoolDriver>,
}

/// The handler `policy`, which translates network policies into security groups.
pub struct PolicyHandler {
    index: Arc<PolicyIndex>,
    groups: GroupStore,
    vif_groups: VifGroups,
    notices: Notices,
}

impl PolicyHandler {
    /// Creates the handler, which records Events through `recorder`. The same `claims` must be used
    /// by the handler `vif`, and the same `index` by the driver [`PolicySecurityGroups`].
    pub fn new(
        drivers: PolicyDrivers,
        claims: Arc<VifClaims>,
        index: Arc<PolicyIndex>,
        recorder: Recorder,
    ) -> Self {
        let changed = Arc::clone(&index);
        claims.observe(move |pod| changed.mark_changed(pod));
        Self {
            groups: GroupStore::new(Arc::clone(&drivers.policy), Arc::clone(&index)),
            vif_groups: VifGroups::new(drivers, claims, Arc::clone(&index)),
            index,
            notices: Notices::new("policy", recorder),
        }
    }

    /// Registers the handler for policies, pods and nodes, with indexes of policies, pods, nodes
    /// and namespaces, and with garbage collection of security groups.
    pub fn registration(self) -> Registration<Self> {
        let index = Arc::clone(&self.index);
        let registration = Registration::new(self)
            .on::<NetworkPolicy>()
            .on::<Pod>()
            .on::<Node>()
            .on_trigger::<PolicyRecheck>()
            .source(IndexSource(Arc::clone(&index)))
            .index::<Pod>(Arc::clone(&index))
            .index::<Node>(Arc::clone(&index))
            .keeps_unselected()
            .garbage_collector();
        let policies = Some(Arc::clone(&index) as Arc<dyn NetworkPolicyObserver>);
        let namespaces = Some(index as Arc<dyn NamespaceObserver>);
        observe_namespaces(observe_policies(registration, policies), [namespaces])
    }

    /// Reconciles these security groups one by one. A failure does not keep the other groups from being
    /// reconciled; the first error is returned.
    async fn reconcile_groups(
        &self,
        groups: impl IntoIterator<Item = DesiredGroup, IntoIter: Send>,
    ) -> Result<(), PolicyError> {
        let mut result = Ok(());
        for group in groups {
            result = result.and(self.groups.reconcile(&group).await);
        }
        result
    }

    /// Reconciles the three security groups that exist regardless of policies: all ingress, all egress, and `nodes`.
    async fn reconcile_common(&self) -> Result<(), PolicyError> {
        self.reconcile_groups(self.index.common_groups()).await
    }

    /// Reconciles the security groups of a policy, records an Event if the policy has problems, and
    /// deletes security groups that are no longer needed.
    async fn reconcile_policy(&self, identity: &Identity) -> Result<(), PolicyError> {
        let uid: Uid = identity.uid.as_str().into();
        let common = self.reconcile_common().await;
        self.index.apply_changes().await;
        // Read after the calls above: the policy may have changed meanwhile.
        let result = common.and(self.reconcile_groups(self.index.policy_groups(&uid)).await);
        self.refresh_after(&result).await?;
        result?;
        let problems = self.index.problems(&uid);
        let condition = (!problems.is_empty()).then(|| problems.join("; "));
        self.notices.set_condition(identity.clone(), INCOMPLETE, condition);
        self.prune(&uid).await
    }

    /// Assigns the security groups of the pod with this UID to its VIFs.
    async fn reconcile_pod(&self, uid: &Uid) -> Result<(), PolicyError> {
        self.index.apply_changes().await;
        let result = self.vif_groups.reconcile(uid).await;
        self.refresh_after(&result).await?;
        result
    }

    /// Deletes security groups that are no longer needed. If VIFs without a pod still have groups of `policy`, these
    /// are removed from the VIFs and the deletion is repeated. Returns an error only if a group of `policy` remains:
    /// the groups of other policies are deleted with the events of those policies or by garbage collection.
    async fn prune(&self, policy: &Uid) -> Result<(), PolicyError> {
        self.index.apply_changes().await;
        let of_policy =
            |group: &RemainingGroup| group.owner.as_ref().is_some_and(|owner| owner.uid == *policy);
        let mut remaining = self.groups.prune().await;
        let in_use = remaining.iter().filter(|group| of_policy(group) && group.is_in_use());
        let in_use: Vec<_> = in_use.map(|group| group.id.clone()).collect();
        let mut removed = Ok(());
        if !in_use.is_empty() {
            removed = self.vif_groups.remove_from_unused(&in_use).await;
            remaining = self.groups.prune().await;
        }
        let mut count = 0;
        for group in remaining.into_iter().filter(of_policy) {
            if !group.is_in_use() {
                return Err(group.error);
            }
            count += 1;
        }
        if count > 0 { removed.and(Err(PolicyError::InUse(count))) } else { Ok(()) }
    }

    /// Lists the security groups again if the error in `result` shows that another program may have
    /// deleted one. If the list shows a change, all pods and policies are reconciled again.
    async fn refresh_after(&self, result: &Result<(), PolicyError>) -> Result<(), PolicyError> {
        if result.as_ref().err().is_some_and(PolicyError::is_stale) && self.groups.refresh().await? {
            self.groups_changed().await?;
        }
        Ok(())
    }

    /// Handles a change of security groups by another program: marks all pods and policies as changed,
    /// and reconciles the groups that exist regardless of policies, because they have no events.
    async fn groups_changed(&self) -> Result<(), PolicyError> {
        self.index.mark_all_changed();
        self.reconcile_common().await
    }
}

impl ResourceEventHandler<NetworkPolicy> for PolicyHandler {
    type Error = PolicyError;

    async fn on_present(&self, policy: &Arc<NetworkPolicy>) -> Result<Action, PolicyError> {
        self.reconcile_policy(&Identity::of_object(&**policy)).await.map(Action::from)
    }

    /// Reconciles a policy that is being deleted like any other, because it applies until it is
    /// deleted.
    async fn on_finalize(&self, policy: &Arc<NetworkPolicy>) -> Result<Action, PolicyError> {
        self.reconcile_policy(&Identity::of_object(&**policy)).await.map(Action::from)
    }

    async fn on_deleted(&self, tombstone: &Tombstone<NetworkPolicy>) -> Result<Action, PolicyError> {
        let uid = tombstone.object_ref().uid;
        self.notices.forget(uid);
        self.prune(&uid.into()).await.map(Action::from)
    }
}

impl ResourceEventHandler<Pod> for PolicyHandler {
    type Error = PolicyError;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, PolicyError> {
        self.reconcile_pod(&Owner::of(&pod.metadata).uid).await.map(Action::from)
    }

    /// Reconciles a terminating pod like any other, because it keeps its VIFs and their groups.
    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<Action, PolicyError> {
        self.reconcile_pod(&Owner::of(&pod.metadata).uid).await.map(Action::from)
    }
}

impl ResourceEventHandler<Node> for PolicyHandler {
    type Error = PolicyError;

    /// Returns the same key for all nodes, because the addresses of all nodes are in one group.
    fn key(&self, _: &Event<Node>) -> OrderingKey {
        OrderingKey::of("nodes")
    }

    async fn on_present(&self, _: &Arc<Node>) -> Result<Action, PolicyError> {
        self.reconcile_common().await.map(Action::from)
    }

    async fn on_finalize(&self, _: &Arc<Node>) -> Result<Action, PolicyError> {
        self.reconcile_common().await.map(Action::from)
    }

    async fn on_deleted(&self, _: &Tombstone<Node>) -> Result<Action, PolicyError> {
        self.reconcile_common().await.map(Action::from)
    }
}

impl TriggerHandler<PolicyRecheck> for PolicyHandler {
    type Error = PolicyError;

    async fn on_trigger(&self, trigger: &PolicyRecheck) -> Result<Action, PolicyError> {
        let identity = trigger.identity();
        if identity.type_id == TypeId::of::<Pod>() {
            self.reconcile_pod(&identity.uid.as_str().into()).await.map(Action::from)
        } else {
            self.reconcile_policy(identity).await.map(Action::from)
        }
    }
}

#[async_trait]
impl GarbageCollector for PolicyHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.groups.read_rule_quota().await?;
        let groups_changed = self.groups.refresh().await?;
        if self.vif_groups.refresh().await? || groups_changed {
            self.index.mark_all_changed();
        }
        // New pods need these groups, and there may be no event that creates them. The nodes, whose group
        // only isolated pods have, are not known yet.
        let [ingress, egress, _] = self.index.common_groups();
        Ok(self.reconcile_groups([ingress, egress]).await?)
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        self.groups.read_rule_quota().await?;
        self.index.apply_changes().await;
        let groups_changed = self.groups.refresh().await?;
        let vifs_changed = self.vif_groups.refresh().await?;
        if groups_changed {
            self.groups_changed().await?;
        } else if vifs_changed {
            self.index.mark_all_changed();
        }
        // Free VIFs of a pool keep them. The next list deletes them.
        let duplicates = self.groups.duplicates().await;
        if !duplicates.is_empty()
            && let Err(error) = self.vif_groups.remove_from_unused(&duplicates).await
        {
            warn!(
                error = causes(&error),
                "free VIFs keep duplicates of security groups until the next sweep"
            );
        }
        // A group that is still needed may have been created for a policy that was deleted since.
        let mut owners = self.groups.unneeded_owners().await;
        owners.extend(self.index.policies());
        Ok(identities::<NetworkPolicy>(owners))
    }
}

#[cfg(test)]
mod tests;
