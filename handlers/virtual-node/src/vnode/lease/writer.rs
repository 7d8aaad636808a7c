//! Writes the Leases of nodes and of replicas.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams, Preconditions, Request, WatchEvent, WatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use staffetta_handler::causes;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{LeaseWrite, REPLICA_LABEL, SeenLease, WriteResult, is_of_replica, replica_digest};

/// The namespace of node leases, in which the cluster looks for the heartbeat of a node.
const NAMESPACE: &str = "kube-node-lease";

/// The minimum time between two warnings about failed writes.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of one request for a Lease.
const LIMIT: Duration = Duration::from_secs(5);

/// The maximum number of requests for Leases at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Writes the Leases of nodes and of replicas. The Lease of a node is also its heartbeat: if nobody renews it, the cluster sets the node's
/// conditions to `Unknown`.
pub(in crate::vnode) struct LeaseWriter {
    client: Client,
    api: Api<Lease>,
    replica: String,
    seconds: i32,
    labels: BTreeMap<String, String>,
    permits: Semaphore,
    /// The time of the last warning.
    warned: Mutex<Option<Instant>>,
}

/// The maximum number of attempts to give up a Lease.
const GIVE_UP_ATTEMPTS: usize = 2;

impl LeaseWriter {
    /// Creates a writer for the holder `replica`. Leases last for `seconds` and have these labels, by which they are watched.
    pub(in crate::vnode) fn new(
        client: Client,
        replica: String,
        seconds: i32,
        labels: BTreeMap<String, String>,
    ) -> Self {
        let (api, warned) = (Api::namespaced(client.clone(), NAMESPACE), Mutex::default());
        let permits = Semaphore::new(MAX_CONCURRENT_REQUESTS);
        Self { client, api, replica, seconds, labels, permits, warned }
    }

    /// Writes the Lease `name`. Its owner is the Node object `node`, if there is one.
    pub(in crate::vnode) async fn write(
        &self,
        name: &str,
        node: Option<&Node>,
        write: LeaseWrite,
    ) -> WriteResult {
        let (seen, holder) = match &write {
            LeaseWrite::Create { .. } => (None, ""),
            LeaseWrite::Recreate => (None, self.replica.as_str()),
            LeaseWrite::Replace { seen } => (Some(seen), self.replica.as_str()),
            LeaseWrite::GiveUp { seen } => (Some(seen), ""),
        };
        let permit = self.permits.acquire().await;
        let lease = self.lease(name, node, seen, holder);
        let written = match tokio::time::timeout(LIMIT, self.send(name, &lease, seen.is_some())).await {
            Ok(Ok(written)) => written,
            // This is also the answer where the Lease does not exist; 404 means that its namespace does not.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return self.current(name).await,
            Ok(Err(error)) => return self.failed(name, &causes(&error)),
            Err(_) => return self.failed(name, &format!("no answer within {} s", LIMIT.as_secs())),
        };
        let LeaseWrite::Create { since: Some(since) } = write else { return WriteResult::Written(written) };
        if !self.is_first(name, since, &written).await {
            return WriteResult::Written(written);
        }
        drop(permit);
        let seen = SeenLease { renewed: true, ..written };
        match Box::pin(self.write(name, node, LeaseWrite::Replace { seen })).await {
            WriteResult::Written(taken) => WriteResult::First(taken),
            other => other,
        }
    }

    /// Returns `true` if the Lease `name` was `created` as the first event of its name after the version `since`. Returns `false` if the
    /// API server does not have the history from there on, or does not answer in time.
    async fn is_first(&self, name: &str, since: u64, created: &SeenLease) -> bool {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let first = async {
            let mut events = pin!(self.api.watch(&params, &since.to_string()).await.ok()?);
            events.next().await?.ok()
        };
        let first = tokio::time::timeout(LIMIT, first).await;
        matches!(first, Ok(Some(WatchEvent::Added(lease))) if SeenLease::of(&lease) == *created)
    }

    /// Creates a Lease, or replaces it if it `exists`.
    async fn send(&self, name: &str, lease: &Lease, exists: bool) -> kube::Result<SeenLease> {
        let (target, params) = (Request::new(self.api.resource_url()), PostParams::default());
        let body = serde_json::to_vec(lease).map_err(kube::Error::SerdeError)?;
        let request = if exists { target.replace(name, &params, body) } else { target.create(&params, body) };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// Logs a failed write, as a warning at most once in [`WARNING_INTERVAL`]. Returns [`WriteResult::Failed`].
    fn failed(&self, name: &str, error: &str) -> WriteResult {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            warn!(node = name, error, "leases of nodes cannot be written; the bases of these nodes wait");
        } else {
            debug!(node = name, error, "the lease of a node was not written");
        }
        WriteResult::Failed
    }

    /// Reads a Lease again after a write that met another state than expected, and returns its current state as the result.
    async fn current(&self, name: &str) -> WriteResult {
        match tokio::time::timeout(LIMIT, self.api.get_opt(name)).await {
            Ok(Ok(Some(lease))) => WriteResult::Conflict(SeenLease::of(&lease)),
            Ok(Ok(None)) => WriteResult::Missing,
            Ok(Err(error)) => self.failed(name, &causes(&error)),
            Err(_) => self.failed(name, &format!("no answer within {} s", LIMIT.as_secs())),
        }
    }

    /// Gives up the Lease in this state, so that another process takes it at once. Returns its new state; `None` if that failed, and
    /// others take it when it expires.
    pub(in crate::vnode) async fn give_up(
        &self,
        name: &str,
        node: Option<&Node>,
        mut seen: SeenLease,
    ) -> Option<SeenLease> {
        for _ in 0..GIVE_UP_ATTEMPTS {
            match self.write(name, node, LeaseWrite::GiveUp { seen }).await {
                WriteResult::Written(lease) => return Some(lease),
                // A renewal that was sent before, and whose response nobody waits for any more, has changed the Lease.
                WriteResult::Conflict(newer) if *newer.holder == *self.replica && newer.renewed => {
                    seen = newer;
                }
                _ => return None,
            }
        }
        None
    }

    /// Gives up the Lease of a node that exists no more, and deletes it if nobody has taken it since.
    pub(in crate::vnode) async fn retire(&self, name: &str, seen: SeenLease) {
        if let Some(seen) = self.give_up(name, None, seen).await {
            // If this fails, a replica deletes it later, as the Lease of an unknown node.
            self.delete(name, seen.version).await;
        }
    }

    /// Deletes the Lease `name` if it still has the `resourceVersion` in `version`. A failure is ignored.
    pub(in crate::vnode) async fn delete(&self, name: &str, version: u64) {
        let preconditions = Preconditions { resource_version: Some(version.to_string()), uid: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let _permit = self.permits.acquire().await;
        // Whoever sees it expired deletes it.
        let _ = tokio::time::timeout(LIMIT, self.api.delete(name, &params)).await;
    }

    /// Returns the Lease `name` for `holder`, renewed now unless it is or was just created; an empty `holder` gives it up. A `node` becomes its owner, so that both are
    /// deleted together. With `seen`, the Lease has the UID and the `resourceVersion` of that state, so that a PUT fails if it has changed
    /// or was deleted. (With the `resourceVersion` alone, the API server would create a deleted Lease again.)
    fn lease(&self, name: &str, node: Option<&Node>, seen: Option<&SeenLease>, holder: &str) -> Lease {
        let mut labels = self.labels.clone();
        if !holder.is_empty() && !is_of_replica(name) {
            labels.insert(REPLICA_LABEL.to_owned(), replica_digest(holder));
        }
        let owner = node.and_then(|node| node.metadata.uid.clone()).map(|uid| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            uid,
            ..OwnerReference::default()
        });
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                labels: Some(labels),
                owner_references: owner.map(|owner| vec![owner]),
                uid: seen.map(|seen| seen.uid.to_string()),
                resource_version: seen.map(|seen| seen.version.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(self.seconds),
                renew_time: seen.is_some_and(|seen| seen.renewed).then(|| MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use staffetta_apiserver::{ApiServer, Options};
    use tokio::sync::mpsc;

    use super::*;

    /// Returns a writer whose changes are rejected with `code`, while the Lease is `now`; and the UID and the version in the changes.
    fn writer(code: u16, now: Value) -> (LeaseWriter, mpsc::UnboundedReceiver<(Value, Value)>) {
        let (log, puts) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, now) = (log.clone(), now.clone());
            async move {
                let (code, body) = if request.method() != Method::GET {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let lease: Value = serde_json::from_slice(&body).unwrap();
                    let metadata = &lease["metadata"];
                    log.send((metadata["uid"].clone(), metadata["resourceVersion"].clone())).unwrap();
                    (code, json!({ "kind": "Status", "status": "Failure", "code": code }))
                } else if now.is_null() {
                    (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }))
                } else {
                    (200, now)
                };
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
                Ok::<_, std::convert::Infallible>(response.body(body).unwrap())
            }
        });
        let client = Client::new(service, "default");
        (LeaseWriter::new(client, "ours".to_owned(), 40, BTreeMap::new()), puts)
    }

    #[tokio::test]
    async fn writes_name_the_uid_and_the_version_of_the_lease_that_was_seen() {
        let spec = json!({ "holderIdentity": "ours", "renewTime": "2026-01-01T00:00:00.000000Z" });
        let now = json!({ "metadata": { "uid": "other", "resourceVersion": "9" }, "spec": spec });
        let (writer, mut puts) = writer(409, now);
        let seen = SeenLease::held(7, "ours");
        for write in [LeaseWrite::Replace { seen: seen.clone() }, LeaseWrite::GiveUp { seen: seen.clone() }] {
            let WriteResult::Conflict(found) = writer.write("n", None, write).await else { panic!() };
            assert_eq!((&*found.uid, found.version), ("other", 9));
            assert_eq!(puts.recv().await.unwrap(), (json!("uid"), json!("7")));
        }
        assert_eq!(writer.give_up("n", None, seen).await, None);
        assert_eq!(puts.recv().await.unwrap(), (json!("uid"), json!("7")));
        assert_eq!(puts.recv().await.unwrap(), (json!("other"), json!("9")), "a renewal was on its way");
    }

    #[tokio::test]
    async fn a_lease_is_taken_at_once_only_if_the_server_knows_that_nobody_held_it() {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
        let writer = LeaseWriter::new(client, "ours".to_owned(), 40, BTreeMap::new());
        let WriteResult::Written(own) = writer.write("own", None, LeaseWrite::Recreate).await else {
            panic!()
        };
        assert!(!own.renewed);
        let create = LeaseWrite::Create { since: Some(own.version) };
        let WriteResult::First(taken) = writer.write("n", None, create.clone()).await else { panic!() };
        assert_eq!((&*taken.holder, taken.renewed), ("ours", true));
        writer.delete("n", taken.version).await;
        for create in
            [create, LeaseWrite::Create { since: None }, LeaseWrite::Create { since: Some(9_999_999) }]
        {
            let WriteResult::Written(created) = writer.write("n", None, create).await else { panic!() };
            assert_eq!((&*created.holder, created.renewed), ("", false));
            writer.delete("n", created.version).await;
        }
    }

    #[tokio::test]
    async fn a_missing_namespace_is_a_failure_and_no_missing_lease() {
        let (writer, _puts) = writer(404, Value::Null);
        assert_eq!(writer.write("n", None, LeaseWrite::Recreate).await, WriteResult::Failed);
    }
}
