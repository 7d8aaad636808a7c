//! The handler `policy`: network policies become security groups, and pods bear them.
//!
//! What there is to be is a function of the policies, pods, namespaces and nodes ([`PolicyBook`]), which the watches feed. A
//! policy's event brings about its groups and their rules, a pod's event the groups in front of its VIFs; what a change means
//! for others comes as a signal to each of them, in its own queue. All of it asks the book what is wanted by then, compares
//! it with what is known, and sends the difference: late, early or repeated news do no harm.
//!
//! Nothing is written in the API. Groups are found by their marks.

mod due;
mod error;
mod groups;
mod guards;
mod notes;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::policy::PolicyBook;
use staffetta_driver::{
    NamespaceObserver, NetworkPolicyDriver, NetworkPolicyObserver, Owner, Reason, Uid, VifPoolDriver,
};
use staffetta_handler::{
    Event, HandlerError, Identity, Index, Message, Notes, OrderingKey, Registration, ResourceEventHandler,
    Signal, SignalHandler, Sweep, Tombstone,
};

use self::due::WhatIsDue;
use self::groups::{Groups, WhyLeft};
use self::guards::Guards;
use self::notes::PolicyNotes;
use crate::namespaces::feeding;
use crate::network_policies;
use crate::owners::identities;

pub use self::due::Moved;
pub use self::error::PolicyError;

/// The drivers of the handler.
#[derive(Clone)]
pub struct PolicyDrivers {
    /// Who makes security groups and puts them in front of VIFs.
    pub policy: Arc<dyn NetworkPolicyDriver>,
    /// Who hands out VIFs, perhaps a second time, and must know what guards them by then.
    pub pool: Arc<dyn VifPoolDriver>,
}

/// The handler `policy`.
pub struct PolicyHandler {
    book: Arc<PolicyBook>,
    groups: Groups,
    guards: Arc<Guards>,
    notes: PolicyNotes,
}

impl PolicyHandler {
    /// Keeps what stands in `book`, by `drivers`.
    pub fn new(drivers: PolicyDrivers, book: Arc<PolicyBook>, notes: Notes) -> Self {
        Self {
            groups: Groups::new(Arc::clone(&drivers.policy), Arc::clone(&book)),
            guards: Arc::new(Guards::new(drivers, Arc::clone(&book))),
            book,
            notes: PolicyNotes::new(notes),
        }
    }

    /// The handler as it is registered: for policies, pods and nodes, with indexes of these and of namespaces, and a sweep.
    pub fn registration(self) -> Registration<Self> {
        let (book, guards) = (Arc::clone(&self.book), Arc::clone(&self.guards));
        let registration = Registration::new(self)
            .on::<NetworkPolicy>()
            .on::<Pod>()
            .on::<Node>()
            .on_signal::<Moved>()
            .source(WhatIsDue(Arc::clone(&book)))
            .index::<Pod>(guards)
            .index::<Node>(Arc::new(KnownNodes(Arc::clone(&book))))
            .sweep();
        let policies = Some(Arc::clone(&book) as Arc<dyn NetworkPolicyObserver>);
        let registration = network_policies::feeding(registration, policies);
        feeding(registration, [Some(book as Arc<dyn NamespaceObserver>)])
    }

    /// The groups that are there whatever policies say, each for itself: the answer is the first failure.
    async fn settle_common(&self) -> Result<(), PolicyError> {
        let mut settled = Ok(());
        for (name, rules) in self.book.common_groups() {
            settled = settled.and(self.groups.settle(&name, None, &rules).await);
        }
        settled
    }

    async fn settle_policy(&self, identity: &Identity) -> Result<(), PolicyError> {
        let uid: Uid = identity.uid.as_str().into();
        let settled = self.settle_groups(&uid).await;
        self.renew_after(&settled).await?;
        settled?;
        self.notes.tell(identity, &self.book.problems(&uid));
        self.prune(&uid).await
    }

    /// The common groups and those of a policy, each for itself: a group that cannot be had keeps nothing open in another. The
    /// answer is the first failure.
    async fn settle_groups(&self, uid: &Uid) -> Result<(), PolicyError> {
        let mut settled = self.settle_common().await;
        for wish in self.book.groups(uid) {
            settled = settled.and(self.groups.settle(&wish.name, Some(&wish.owner), &wish.rules).await);
        }
        settled
    }

    async fn settle_pod(&self, uid: &Uid) -> Result<(), PolicyError> {
        let settled = self.guards.settle(uid).await;
        self.renew_after(&settled).await?;
        settled
    }

    /// Removes what nobody wants. What guards a VIF that no pod shows is taken away from it. It fails only for what is left
    /// that was made for `policy`: others have events of their own, or the sweep finds them.
    async fn prune(&self, policy: &Uid) -> Result<(), PolicyError> {
        let mut left = self.groups.prune().await;
        let in_use = left.iter().filter_map(|left| match &left.why {
            WhyLeft::InUse(id) => Some(id.clone()),
            WhyLeft::Failed(_) => None,
        });
        let in_use: Vec<_> = in_use.collect();
        let mut stripped = Ok(());
        if !in_use.is_empty() {
            stripped = self.guards.strip(&in_use).await;
            left = self.groups.prune().await;
        }
        left.retain(|left| left.owner.as_ref().is_some_and(|owner| owner.uid == *policy));
        let guarding = left.iter().filter(|left| matches!(left.why, WhyLeft::InUse(_))).count();
        let failed = left.into_iter().find_map(|left| match left.why {
            WhyLeft::Failed(error) => Some(error),
            WhyLeft::InUse(_) => None,
        });
        match failed {
            Some(error) => Err(error),
            None if guarding > 0 => stripped.and(Err(PolicyError::InUse(guarding))),
            None => Ok(()),
        }
    }

    /// After something turned out to be gone: reads what there is.
    async fn renew_after(&self, result: &Result<(), PolicyError>) -> Result<(), PolicyError> {
        let vanished = |error: &PolicyError| {
            let reason = error.driver().map(staffetta_driver::DriverError::reason);
            matches!(reason, Some(Reason::NotFound | Reason::Conflict))
        };
        if result.as_ref().err().is_some_and(vanished) && self.groups.refresh().await? {
            self.regroup().await?;
        }
        Ok(())
    }

    /// Groups are otherwise than they were known: all are looked at again, the common ones at once, for they have no event.
    async fn regroup(&self) -> Result<(), PolicyError> {
        self.book.all_due();
        self.settle_common().await
    }

    /// Reads all that there is. Answers whether groups, and whether what guards VIFs, are otherwise than they were known.
    async fn refresh(&self) -> Result<(bool, bool), PolicyError> {
        Ok((self.groups.refresh().await?, self.guards.refresh().await?))
    }
}

impl ResourceEventHandler<NetworkPolicy> for PolicyHandler {
    type Error = PolicyError;

    async fn on_present(&self, policy: &Arc<NetworkPolicy>) -> Result<(), PolicyError> {
        self.settle_policy(&Identity::of_object(&**policy)).await
    }

    /// Until it is gone, it holds.
    async fn on_finalize(&self, policy: &Arc<NetworkPolicy>) -> Result<(), PolicyError> {
        self.settle_policy(&Identity::of_object(&**policy)).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<NetworkPolicy>) -> Result<(), PolicyError> {
        let uid: Uid = tombstone.subject().uid.into();
        self.notes.forget(&uid);
        self.prune(&uid).await
    }
}

impl ResourceEventHandler<Pod> for PolicyHandler {
    type Error = PolicyError;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), PolicyError> {
        self.settle_pod(&Owner::of(&pod.metadata).uid).await
    }

    /// It keeps what it uses, and what guards that.
    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), PolicyError> {
        self.settle_pod(&Owner::of(&pod.metadata).uid).await
    }
}

impl ResourceEventHandler<Node> for PolicyHandler {
    type Error = PolicyError;

    /// All nodes are in one group.
    fn key(&self, _: &Event<Node>) -> OrderingKey {
        OrderingKey::of("nodes")
    }

    async fn on_present(&self, _: &Arc<Node>) -> Result<(), PolicyError> {
        self.settle_common().await
    }

    async fn on_finalize(&self, _: &Arc<Node>) -> Result<(), PolicyError> {
        self.settle_common().await
    }

    async fn on_deleted(&self, _: &Tombstone<Node>) -> Result<(), PolicyError> {
        self.settle_common().await
    }
}

impl SignalHandler<Moved> for PolicyHandler {
    type Error = PolicyError;

    async fn on_signal(&self, signal: &Moved) -> Result<(), PolicyError> {
        let identity = signal.identity();
        if identity.type_id == std::any::TypeId::of::<Pod>() {
            self.settle_pod(&identity.uid.as_str().into()).await
        } else {
            self.settle_policy(identity).await
        }
    }
}

impl Sweep for PolicyHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        let (groups, guards) = self.refresh().await?;
        if groups || guards {
            self.book.all_due();
        }
        // Without these no pod gets a VIF, and no event may come that makes them. Which nodes there are is not known yet.
        let [ingress, egress, (nodes, _)] = self.book.common_groups();
        for (name, rules) in [ingress, egress] {
            self.groups.settle(&name, None, &rules).await?;
        }
        self.groups.settle_existence(&nodes).await?;
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        let (groups, guards) = self.refresh().await?;
        if groups {
            self.regroup().await?;
        } else if guards {
            self.book.all_due();
        }
        Ok(identities::<NetworkPolicy>(self.groups.orphaned().await))
    }
}

/// Tells the book which nodes there are.
struct KnownNodes(Arc<PolicyBook>);

impl Index<Node> for KnownNodes {
    fn apply(&self, event: &Event<Node>) {
        match event {
            Event::Added(node) | Event::Modified(node) => self.0.node_present(node),
            Event::Deleted(_) => self.0.node_gone(&event.uid().into()),
        }
    }
}

#[cfg(test)]
mod tests;
