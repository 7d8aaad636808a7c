//! The lease of a node, by which the node controller of the cluster knows that the controller of the node is alive.
//!
//! The lease is renewed while this process is the leader, even if the machine is unreachable: the lease stands for this
//! process, and the condition `Ready` for the machine. Without a renewed lease the node controller would set the
//! condition to `Unknown` and replace its reason.

use dashmap::DashMap;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

/// The namespace of node leases.
const NAMESPACE: &str = "kube-node-lease";

/// The duration of a lease in seconds, after which the node controller considers the node lost.
const SECONDS: i32 = 40;

/// Renews the leases of nodes.
pub(crate) struct NodeLeases {
    api: Api<Lease>,
    /// The time of the last renewal and the UID of the Node object, by node name.
    renewed: DashMap<String, (Instant, String)>,
    /// The time between two calls of [`renew`](NodeLeases::renew) for a node.
    interval: std::time::Duration,
}

impl NodeLeases {
    /// Creates the writer of the leases. `interval` is the time between two calls of [`renew`](Self::renew) for a node.
    pub(crate) fn new(client: Client, interval: std::time::Duration) -> Self {
        Self { api: Api::namespaced(client, NAMESPACE), renewed: DashMap::new(), interval }
    }

    /// Renews the lease of a node, unless it was renewed less than three quarters of the interval ago. A missing lease
    /// is created. Fails if the API server rejects the request or does not answer.
    pub(crate) async fn renew(&self, node: &Node) -> Result<(), kube::Error> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let fresh = self
            .renewed
            .get(&name)
            .is_some_and(|last| last.1 == uid && last.0.elapsed() < self.interval * 3 / 4);
        if fresh {
            return Ok(());
        }
        let began = Instant::now();
        let lease = lease_of(node, Timestamp::now());
        let patch = Patch::Merge(
            json!({ "metadata": { "ownerReferences": lease.metadata.owner_references }, "spec": lease.spec }),
        );
        match self.api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.api.create(&PostParams::default(), &lease).await?;
            }
            Err(error) => return Err(error),
        }
        self.renewed.insert(name, (began, uid));
        Ok(())
    }

    /// Forgets the last renewal of a removed node.
    pub(crate) fn forget(&self, name: &str) {
        self.renewed.remove(name);
    }
}

/// Builds a lease, with the Node object as its owner, that is renewed at `now`.
fn lease_of(node: &Node, now: Timestamp) -> Lease {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: Some(SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}
