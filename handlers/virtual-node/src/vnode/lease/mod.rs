//! The Leases by which replicas share nodes: the replica that holds the Lease of a node acts for the node. A replica without a node has a
//! Lease of its own.

mod election;
mod history;
mod index;
mod writer;

pub(super) use election::{LeaseElection, LeaseTiming, LeaseWrite, WriteResult};
pub(super) use history::VersionHistory;
pub(super) use index::LeaseIndex;
pub(super) use writer::LeaseWriter;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;

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

/// The placeholder for the holder of a Lease whose deletion was not seen: the last holder is not known. It is no valid identity.
const UNKNOWN_HOLDER: &str = "?";

/// A Lease as this process has seen it: in a watch, or as the response to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "LeaseFields")]
pub(super) struct SeenLease {
    /// The UID. A Lease that is deleted and created again has another one.
    pub(super) uid: Arc<str>,
    /// The `resourceVersion`. A larger one is newer.
    pub(super) version: u64,
    /// The identity of the holder, empty if nobody holds it. If the Lease was deleted, that of the last holder.
    pub(super) holder: Arc<str>,
    /// `false` if nobody has taken or renewed the Lease since it was created. Holders of a deleted one may still act then.
    pub(super) renewed: bool,
    /// `true` if the Lease was deleted.
    pub(super) deleted: bool,
}

/// The fields of a Lease in a response that are read. To parse the others, above all `managedFields`, would be most of the work.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LeaseFields {
    metadata: LeaseMetadata,
    spec: LeaseHolder,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseMetadata {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseHolder {
    holder_identity: Option<String>,
    renew_time: Option<IgnoredAny>,
}

impl From<LeaseFields> for SeenLease {
    fn from(LeaseFields { metadata, spec }: LeaseFields) -> Self {
        let renewed = spec.renew_time.is_some();
        Self::new(&metadata.uid, &metadata.resource_version, spec.holder_identity.as_deref(), renewed)
    }
}

impl SeenLease {
    fn new(uid: &str, version: &str, holder: Option<&str>, renewed: bool) -> Self {
        Self {
            uid: uid.into(),
            version: version.parse().unwrap_or_default(),
            holder: holder.unwrap_or_default().into(),
            renewed,
            deleted: false,
        }
    }

    /// Returns the state of an existing Lease.
    pub(super) fn of(lease: &Lease) -> Self {
        let ObjectMeta { uid, resource_version, .. } = &lease.metadata;
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        let renewed = spec.is_some_and(|spec| spec.renew_time.is_some());
        let (uid, version) = (uid.as_deref().unwrap_or_default(), resource_version.as_deref());
        Self::new(uid, version.unwrap_or_default(), holder, renewed)
    }

    /// Returns an existing Lease, for tests.
    #[cfg(test)]
    pub(super) fn held(version: u64, holder: &str) -> Self {
        Self { uid: "uid".into(), version, holder: holder.into(), renewed: true, deleted: false }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_is_read_as_the_same_lease_is_in_a_watch() {
        let metadata =
            json!({ "uid": "u", "resourceVersion": "7", "managedFields": [{ "manager": "ours" }] });
        let renew_time = "2026-01-01T00:00:00.000000Z";
        for (spec, holder, renewed) in [
            (json!({ "holderIdentity": "b", "renewTime": renew_time }), "b", true),
            (json!({ "holderIdentity": null, "renewTime": null }), "", false),
            (json!({}), "", false),
        ] {
            let lease = json!({ "metadata": metadata, "spec": spec });
            let response: SeenLease = serde_json::from_value(lease.clone()).unwrap();
            assert_eq!(response, SeenLease::of(&serde_json::from_value(lease).unwrap()));
            assert_eq!(
                (&*response.uid, response.version, &*response.holder, response.renewed),
                ("u", 7, holder, renewed)
            );
            assert!(!response.deleted);
        }
    }
}
