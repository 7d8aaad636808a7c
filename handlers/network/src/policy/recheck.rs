//! Triggers for pods and policies whose security groups must be reconciled although the objects
//! themselves did not change.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_handler::{HandlerError, Identity, Source, Trigger, TriggerSender};

use super::index::PolicyIndex;
use crate::owners::identity;

/// A trigger to reconcile the security groups of a pod or a policy.
#[derive(Clone, Debug)]
pub struct PolicyRecheck(pub(super) Identity);

impl Trigger for PolicyRecheck {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// A source that sends a trigger for each pod and policy that the index marks as changed, so that its security groups are reconciled.
pub(super) struct IndexSource(pub(super) Arc<PolicyIndex>);

#[async_trait]
impl Source for IndexSource {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            self.0.changed().await;
            self.0.apply_changes().await;
            let changes = self.0.take_changes();
            for policy in changes.policies {
                sender.send(PolicyRecheck(identity::<NetworkPolicy>(policy)));
            }
            for pod in changes.pods {
                sender.send(PolicyRecheck(identity::<Pod>(pod)));
            }
            tokio::task::yield_now().await;
        }
    }
}
