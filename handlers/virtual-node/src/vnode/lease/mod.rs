//! The Leases by which replicas share nodes: the replica that holds the Lease of a node acts for the node. A replica without a node has a
//! Lease of its own.

mod election;
mod index;
mod writer;

pub(super) use election::{LeaseElection, LeaseTiming, LeaseWrite, WriteResult};
pub(super) use index::LeaseIndex;
pub(super) use writer::LeaseWriter;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;

/// The prefix of the names of the Leases of replicas. No node of a base has such a name.
const REPLICA_PREFIX: &str = "staffetta-replica-";

/// The label of the Lease of a node with the [digest](replica_digest) of the replica that holds it. The watch of a replica leaves out the
/// Leases that it holds, whose states it knows from the responses to its renewals.
pub(super) const REPLICA_LABEL: &str = "staffetta.dev/replica";

/// Returns the digest of a replica, which is a valid value of a label.
pub(super) fn replica_digest(replica: &str) -> String {
    let mut digest = DefaultHasher::new();
    replica.hash(&mut digest);
    format!("{:016x}", digest.finish())
}

/// Returns the name of the Lease of a replica.
pub(super) fn replica_lease(replica: &str) -> String {
    format!("{REPLICA_PREFIX}{}", replica_digest(replica))
}

/// Returns `true` if a Lease with this name is that of a replica.
pub(super) fn is_of_replica(name: &str) -> bool {
    name.starts_with(REPLICA_PREFIX)
}

/// The holder of a Lease whose deletion was not seen. It is no valid identity.
const UNKNOWN_HOLDER: &str = "?";

/// A Lease as this process has seen it: in a watch, or as the response to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenLease {
    /// The UID. A Lease that is deleted and created again has another one.
    pub(super) uid: Arc<str>,
    /// The `resourceVersion`. A larger one is newer.
    pub(super) version: u64,
    /// The identity of the holder, empty if nobody holds it. If the Lease was deleted, that of the last holder.
    pub(super) holder: Arc<str>,
    /// `true` if the Lease was deleted.
    pub(super) deleted: bool,
}

impl SeenLease {
    /// Returns the state of an existing Lease.
    pub(super) fn of(lease: &Lease) -> Self {
        let text = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        Self {
            uid: lease.metadata.uid.as_deref().unwrap_or_default().into(),
            version: text.parse().unwrap_or_default(),
            holder: holder.unwrap_or_default().into(),
            deleted: false,
        }
    }

    /// Returns an existing Lease, for tests.
    #[cfg(test)]
    pub(super) fn held(version: u64, holder: &str) -> Self {
        Self { uid: "uid".into(), version, holder: holder.into(), deleted: false }
    }

    /// Returns the state of a deleted Lease. `lease` is the object in the event of its deletion, with the last holder.
    pub(super) fn deleted(lease: &Lease) -> Self {
        Self { deleted: true, ..Self::of(lease) }
    }

    /// Returns the state of a Lease that was deleted some time after this state. Another process may have held it since.
    pub(super) fn deleted_unseen(self) -> Self {
        Self { deleted: true, holder: UNKNOWN_HOLDER.into(), ..self }
    }
}
