//! The handler `namespace`: every namespace has a network of its own, and gives it back.
//!
//! One write takes a namespace to its network: the annotation and the finalizer together, refused by the server if the
//! namespace changed meanwhile. One more at the end removes the finalizer, after Kubernetes has emptied the namespace.
//! What to do is decided by the module `decide`; this file does it.

mod claims;
mod decide;
mod error;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use staffetta_driver::{
    NAMESPACE_NETWORK, NamespaceNetwork, NamespaceProjectDriver, NamespaceSubnetDriver, Owner,
};
use staffetta_handler::{
    Failure, HandlerError, Identity, MetadataPatch, Registration, ResourceEventHandler, Sweep, Tombstone,
    Writer, Written,
};

use self::claims::{Claim, Claims, of_marks};
use self::decide::{Action, after_deletion, decide};
use crate::owners::{identities, owner_of};

pub use self::error::NamespaceError;

/// The finalizer by which a namespace waits for the release of its network.
pub const FINALIZER: &str = "staffetta.dev/namespace";

/// The drivers of the handler.
#[derive(Clone)]
pub struct NamespaceDrivers {
    /// To which project a namespace belongs.
    pub project: Arc<dyn NamespaceProjectDriver>,
    /// Who makes, finds and releases networks.
    pub subnet: Arc<dyn NamespaceSubnetDriver>,
}

/// The handler `namespace`.
pub struct NamespaceHandler {
    drivers: NamespaceDrivers,
    writer: Writer<Namespace>,
    claims: Claims,
}

impl NamespaceHandler {
    /// Writes through `client`.
    pub fn new(client: Client, drivers: NamespaceDrivers) -> Self {
        Self { drivers, writer: Writer::new(client), claims: Claims::default() }
    }

    /// The handler as it is registered: for namespaces, with a sweep.
    pub fn registration(self) -> Registration<Self> {
        Registration::new(self).on::<Namespace>().sweep()
    }

    async fn act(&self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let owner = Owner::of(&namespace.metadata);
        match decide(namespace, self.claims.get(&owner.uid).as_ref()).map_err(NamespaceError::Annotation)? {
            Action::Nothing => Ok(()),
            Action::Settled => {
                self.claims.forget(&owner.uid);
                Ok(())
            }
            Action::Make => {
                let network = self.make(namespace, &owner).await?;
                self.claim(namespace, &owner, &network).await
            }
            Action::Write(network) => self.claim(namespace, &owner, &network).await,
            Action::Release => {
                self.release(&owner).await?;
                self.finish(namespace).await
            }
            Action::Finish => self.finish(namespace).await,
        }
    }

    async fn finish(&self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let patch = MetadataPatch::default().remove_finalizer(FINALIZER);
        self.writer.metadata(namespace, &patch).await.map(drop).map_err(NamespaceError::Write)
    }

    async fn make(&self, namespace: &Namespace, owner: &Owner) -> Result<NamespaceNetwork, NamespaceError> {
        let project = self.drivers.project.project(namespace).await.map_err(NamespaceError::Project)?;
        // Entered before the call: whatever ends the call, there may be something to release.
        self.claims.set(&owner.uid, Claim::Asked);
        let network =
            self.drivers.subnet.ensure_network(owner, &project).await.map_err(NamespaceError::Make)?;
        self.claims.set(&owner.uid, Claim::Made(network.clone()));
        Ok(network)
    }

    /// Writes the network down. It stays claimed until an event shows it, or the server refuses it for good.
    async fn claim(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        network: &NamespaceNetwork,
    ) -> Result<(), NamespaceError> {
        let patch = MetadataPatch::default().annotate(NAMESPACE_NETWORK, network.write());
        match self.writer.metadata(namespace, &patch.add_finalizer(FINALIZER).claim()).await {
            Ok(Written::Done) => Ok(()),
            Ok(Written::Gone) => self.release(owner).await,
            Err(error) => {
                if error.refused() && !error.transient() {
                    self.release(owner).await?;
                }
                Err(NamespaceError::Write(error))
            }
        }
    }

    async fn release(&self, owner: &Owner) -> Result<(), NamespaceError> {
        self.drivers.subnet.release_network(owner).await.map_err(NamespaceError::Release)?;
        self.claims.set(&owner.uid, Claim::Released);
        Ok(())
    }

    /// For whom there are networks.
    async fn marks(&self) -> Result<Vec<Owner>, NamespaceError> {
        let marked = self.drivers.subnet.networks().await.map_err(NamespaceError::Marks)?;
        Ok(marked.into_iter().filter_map(|marked| marked.owner).collect())
    }
}

impl ResourceEventHandler<Namespace> for NamespaceHandler {
    type Error = NamespaceError;

    async fn on_present(&self, namespace: &Arc<Namespace>) -> Result<(), NamespaceError> {
        self.writer.fresh(namespace)?;
        self.act(namespace).await
    }

    async fn on_finalize(&self, namespace: &Arc<Namespace>) -> Result<(), NamespaceError> {
        if self.writer.is_stale(namespace) { Ok(()) } else { self.act(namespace).await }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Namespace>) -> Result<(), NamespaceError> {
        let owner = owner_of(tombstone);
        if after_deletion(tombstone, self.claims.get(&owner.uid).as_ref()) {
            self.release(&owner).await?;
        }
        self.claims.forget(&owner.uid);
        self.writer.forget(owner.uid.as_str());
        Ok(())
    }
}

impl Sweep for NamespaceHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.claims.replace(of_marks(self.marks().await?));
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        Ok(identities::<Namespace>(self.marks().await?))
    }
}

#[cfg(test)]
mod tests;
