//! The Leases by which replicas share nodes: who holds a node's Lease acts for the node.

mod election;
mod index;
mod writer;

pub(super) use election::{LeaseElection, LeaseTiming, LeaseWrite, WriteResult};
pub(super) use index::LeaseIndex;
pub(super) use writer::LeaseWriter;

use k8s_openapi::api::coordination::v1::Lease;

/// A Lease as this process has seen it: in a watch, or as the response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenLease {
    /// The `resourceVersion`. A larger one is newer.
    pub(super) version: u64,
    /// The identity of the holder, empty if nobody holds it. If the Lease was deleted, that of the last holder.
    pub(super) holder: String,
    /// `true` if the Lease was deleted.
    pub(super) deleted: bool,
}

impl SeenLease {
    /// Returns the state of an existing Lease.
    pub(super) fn of(lease: &Lease) -> Self {
        let text = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let version = text.parse().unwrap_or_default();
        Self { version, holder: holder.unwrap_or_default(), deleted: false }
    }

    /// Returns the state of a deleted Lease, whose last state was `lease`.
    pub(super) fn deleted(lease: &Lease) -> Self {
        Self { deleted: true, ..Self::of(lease) }
    }
}
