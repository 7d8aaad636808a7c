//! The handler `namespace`: creates a network for every namespace, and releases the network when
//! the namespace is deleted.
//!
//! One patch publishes the network: it adds the annotation and the finalizer, and the API server
//! refuses it if the namespace has changed meanwhile. Another patch removes the finalizer after
//! Kubernetes has emptied the namespace and the network is released. The module `decide` chooses
//! the next action; this module executes it.

mod decide;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use staffetta_driver::{
    NAMESPACE_NETWORK, NamespaceNetwork, NamespaceProjectDriver, NamespaceSubnetDriver, Owner, Uid,
};
use staffetta_handler::{
    Action, Failure, GarbageCollector, HandlerError, Identity, MetadataPatch, Recorder, Registration,
    ResourceEventHandler, Tombstone, Writer, Written,
};

use self::decide::{NamespaceAction, NetworkRecord, decide, may_have_network, was_restored};
use crate::installation::Installation;
use crate::notices::Notices;
use crate::owners::{identities, owner_of};
use crate::records::RecordMap;
use crate::step_error::{AWAIT_OWN_WRITE, StepContext, StepError};

/// The finalizer that delays the deletion of a namespace until its network is released.
pub const FINALIZER: &str = "staffetta.dev/namespace";

/// The reason of the Event about an annotation that somebody else changed or removed.
pub(crate) const RESTORED: &str = "NetworkAnnotationRestored";

/// The name of the step in which the namespace's annotation or finalizer is written, for error messages.
const WRITE: &str = "record the network on the namespace";

/// The drivers of the handler `namespace`.
#[derive(Clone)]
pub struct NamespaceDrivers {
    /// The driver that chooses the project of a namespace.
    pub project: Arc<dyn NamespaceProjectDriver>,
    /// The driver that creates, lists and releases the networks of namespaces.
    pub subnet: Arc<dyn NamespaceSubnetDriver>,
}

/// The handler `namespace`, which gives every namespace a network of its own.
pub struct NamespaceHandler {
    drivers: NamespaceDrivers,
    writer: Writer<Namespace>,
    records: RecordMap<NetworkRecord>,
    installation: Installation,
    notices: Notices,
}

impl NamespaceHandler {
    /// Creates the handler. It writes annotations and finalizers through `client`, and its warning Events through `recorder`.
    pub fn new(client: Client, drivers: NamespaceDrivers, recorder: Recorder) -> Self {
        let (writer, records) = (Writer::new(client), RecordMap::default());
        let notices = Notices::new("namespace", recorder);
        Self { drivers, writer, records, installation: Installation::default(), notices }
    }

    /// Makes the handler one of this installation.
    #[must_use]
    pub fn managed_by(self, installation: Installation) -> Self {
        Self { installation, ..self }
    }

    /// Registers the handler for namespaces, with garbage collection of networks whose namespace no
    /// longer exists.
    pub fn registration(self) -> Registration<Self> {
        Registration::new(self).on::<Namespace>().garbage_collector().keeps_unselected()
    }

    /// Chooses and executes the next action for a namespace: creates, publishes or releases its network.
    async fn reconcile(&self, namespace: &Namespace) -> Result<(), StepError> {
        let owner = Owner::of(&namespace.metadata);
        if self.installation.other(namespace).is_some() {
            return Ok(());
        }
        let record = self.records.get(&owner.uid);
        match decide(namespace, record.as_ref()) {
            NamespaceAction::Nothing => Ok(()),
            NamespaceAction::Confirm(network) => {
                self.records.set(&owner.uid, NetworkRecord::Owned(vec![network]));
                // Taken over, or changed by others.
                let marks = self.installation.mark(MetadataPatch::default());
                self.writer.metadata(namespace, &marks).await.map(drop).step(WRITE)
            }
            NamespaceAction::Publish(None) if !self.installation.selects(namespace) && record.is_none() => {
                self.remove_finalizer(namespace).await
            }
            NamespaceAction::Publish(created) => {
                let network = match created {
                    Some(network) => network,
                    None => self.create(namespace, &owner).await?,
                };
                self.publish(namespace, &owner, &network).await?;
                if was_restored(namespace, record.as_ref(), &network) {
                    let text = format!(
                        "the annotation {NAMESPACE_NETWORK} did not name the network of the namespace; it was written again"
                    );
                    self.notices.warn(Identity::of_object(namespace), RESTORED, text);
                }
                Ok(())
            }
            NamespaceAction::Release => {
                self.release(&owner).await?;
                self.remove_finalizer(namespace).await
            }
            NamespaceAction::RemoveFinalizer => self.remove_finalizer(namespace).await,
        }
    }

    /// Removes the finalizer of this handler from the namespace. The network must have been released before.
    async fn remove_finalizer(&self, namespace: &Namespace) -> Result<(), StepError> {
        let patch = self.installation.unmark(MetadataPatch::default().remove_finalizer(FINALIZER));
        self.writer.metadata(namespace, &patch).await.map(drop).step(WRITE)
    }

    /// Creates the network of the namespace, or finds the existing one, and stores it in the
    /// in-memory record.
    async fn create(&self, namespace: &Namespace, owner: &Owner) -> Result<NamespaceNetwork, StepError> {
        let NamespaceDrivers { project, subnet } = &self.drivers;
        let project = project.project(namespace).await.step("find the project of the namespace")?;
        // Recorded before the call: if it is interrupted, there may be a network to release.
        self.records.set(&owner.uid, NetworkRecord::Owned(Vec::new()));
        let network =
            subnet.ensure_network(owner, &project).await.step("create the network of the namespace")?;
        self.records.set(&owner.uid, NetworkRecord::Created(network.clone()));
        Ok(network)
    }

    /// Writes the annotation and the finalizer. The in-memory record stays until an event shows
    /// both. If the namespace was or is being deleted, or the API server permanently refuses the
    /// write, the network is released.
    async fn publish(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        network: &NamespaceNetwork,
    ) -> Result<(), StepError> {
        let patch = MetadataPatch::default().annotate(NAMESPACE_NETWORK, network.write());
        let patch = self.installation.mark(patch.add_finalizer(FINALIZER).claim());
        match self.writer.metadata(namespace, &patch).await {
            Ok(Written::Done) => Ok(()),
            Ok(Written::Gone) => self.release(owner).await,
            Err(error) => {
                if error.refused() && !error.transient() {
                    self.release(owner).await?;
                }
                Err(error).step(WRITE)
            }
        }
    }

    /// Releases the network of the namespace, even if it was created only in part, and sets the
    /// in-memory record to [`NetworkRecord::Released`].
    async fn release(&self, owner: &Owner) -> Result<(), StepError> {
        self.drivers.subnet.release_network(owner).await.step("release the network of the namespace")?;
        self.records.set(&owner.uid, NetworkRecord::Released);
        Ok(())
    }

    /// Lists the networks of namespaces by the ownership marks, including networks that were created only in part.
    async fn marked(&self) -> Result<Vec<(Owner, Vec<NamespaceNetwork>)>, StepError> {
        let marked = self.drivers.subnet.networks().await.step("list the existing networks")?;
        Ok(marked.into_iter().filter_map(|marked| Some((marked.owner?, marked.resource))).collect())
    }
}

impl ResourceEventHandler<Namespace> for NamespaceHandler {
    type Error = StepError;

    async fn on_present(&self, namespace: &Arc<Namespace>) -> Result<Action, StepError> {
        self.writer.fresh(namespace).step(AWAIT_OWN_WRITE)?;
        self.reconcile(namespace).await.map(Action::from)
    }

    async fn on_finalize(&self, namespace: &Arc<Namespace>) -> Result<Action, StepError> {
        if self.writer.fresh(namespace).is_err() {
            Ok(Action::done())
        } else {
            self.reconcile(namespace).await.map(Action::from)
        }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Namespace>) -> Result<Action, StepError> {
        let owner = owner_of(tombstone);
        if may_have_network(tombstone, self.records.get(&owner.uid).as_ref()) {
            self.release(&owner).await?;
        }
        self.records.remove(&owner.uid);
        self.writer.forget(owner.uid.as_str());
        Ok(Action::done())
    }
}

#[async_trait]
impl GarbageCollector for NamespaceHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        let mut owned: HashMap<Uid, Vec<NamespaceNetwork>> = HashMap::new();
        for (owner, networks) in self.marked().await? {
            owned.entry(owner.uid).or_default().extend(networks);
        }
        self.records
            .replace_all(owned.into_iter().map(|(uid, networks)| (uid, NetworkRecord::Owned(networks))));
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        Ok(identities::<Namespace>(self.marked().await?.into_iter().map(|(owner, _)| owner)))
    }
}

#[cfg(test)]
mod tests;
