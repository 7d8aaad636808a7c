//! Writes the results of handlers back to the Kubernetes objects. Each write is one patch, protected against lost updates.

mod patch;

pub use patch::MetadataPatch;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use dashmap::DashMap;
use http::HeaderValue;
use http::header::ACCEPT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, Request};
use kube::core::response::Status;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::event::{WithMetadata, full_name};
use crate::failure::{Failure, Pending};

/// A writer of annotations, finalizers and the status of objects of the built-in kind `K`. Custom resources are not supported: for a
/// strategic merge patch of a custom resource the server returns 415.
///
/// After a write, events that are older than that write are [stale](Self::fresh), so that a handler never acts on a state that it
/// has itself replaced.
pub struct Writer<K> {
    client: Client,
    /// The last write of each object, by UID, until the watch event of that write arrives.
    echoes: DashMap<String, Echo>,
    /// The time at which expired entries of `echoes` were last removed.
    cleaned: Mutex<Instant>,
    kind: PhantomData<fn(K)>,
}

/// A write of this process whose watch event (its echo) has not arrived yet.
struct Echo {
    /// The resourceVersion that the write produced.
    version: u64,
    written: Instant,
}

/// The time for which the watch event of a write is expected. A watch usually lags by less than two seconds. After that time, the event
/// counts as lost: the server may have dropped it from its history before the watch read it. Another write is still protected by the
/// resourceVersion.
const ECHO_TIME: Duration = Duration::from_secs(15);

/// The `Accept` header of a write. It requests only the metadata in the response; a server without that
/// representation returns the whole object (Kubernetes API concepts, "Alternate representations of
/// resources"). Decoding the whole object would be a large part of the cost of a write.
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");

/// The outcome of a write that did not fail.
///
/// A conflict (409) is not among the outcomes but is an error that is [pending](Failure::pending): the event of the conflicting change
/// usually supersedes the write within milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The object has the requested metadata or status.
    Done,
    /// The object was deleted, replaced by another object of the same name, or its deletion has begun. The handler must release the
    /// resources of the object.
    Gone,
}

/// The error for an object that is older than the last write of this process. The watch event of that write has not arrived yet; when
/// it does, it supersedes the event at hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event of our last write has not arrived yet")]
pub struct Stale;

impl Failure for Stale {
    fn transient(&self) -> bool {
        true
    }

    fn pending(&self) -> Option<Pending> {
        Some(Pending::default())
    }

    fn reason(&self) -> &'static str {
        "EventAwaited"
    }
}

/// The error of a failed write: the API server rejected it or could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("write the {what} of {kind} {name}")]
pub struct WriteError {
    what: &'static str,
    kind: String,
    name: String,
    #[source]
    source: Box<kube::Error>,
}

impl WriteError {
    /// Returns `true` if the API server rejected the request (4xx), so that certainly nothing was written. A
    /// 408 (request timeout) does not count as rejected, because the server may have begun to write.
    pub fn refused(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
    }
}

impl Failure for WriteError {
    fn transient(&self) -> bool {
        self.source.transient()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.source.retry_after()
    }

    /// Returns `None`, except for a conflict (409), which is pending work: the object has changed, and the event of that change follows.
    fn pending(&self) -> Option<Pending> {
        matches!(&*self.source, kube::Error::Api(status) if status.code == 409).then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        if self.refused() && !self.transient() { "WriteRefused" } else { "WriteFailed" }
    }
}

impl<K> Writer<K>
where
    K: Resource<DynamicType = ()>,
{
    /// Creates a writer that sends requests with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, echoes: DashMap::new(), cleaned: Mutex::new(Instant::now()), kind: PhantomData }
    }

    /// Checks that `object` is not older than the last write of this process.
    ///
    /// Returns [`Stale`] until the watch event of that write arrives, but not for longer than 15 s after the write, in case the event
    /// is lost.
    pub fn fresh(&self, object: &K) -> Result<(), Stale> {
        if self.newer_write(object).is_some() { Err(Stale) } else { Ok(()) }
    }

    /// Returns the resourceVersion that the last write of this process produced, if `object` is older and the watch event of that write
    /// is still expected. Otherwise forgets that write. An object without a resourceVersion counts as older.
    fn newer_write(&self, object: &K) -> Option<u64> {
        let meta = object.meta();
        let (uid, seen) = (meta.uid.as_ref()?, version(meta.resource_version.as_deref()));
        let is_over = |echo: &Echo| seen >= Some(echo.version) || echo.written.elapsed() >= ECHO_TIME;
        // The guard of the entry ends with the closure, before the entry is removed.
        let newer = self.echoes.get(uid).map(|echo| (!is_over(&echo)).then_some(echo.version))?;
        if newer.is_none() {
            self.echoes.remove_if(uid, |_, echo| is_over(echo));
        }
        newer
    }

    /// Forgets the last write of the deleted object with the UID `uid`, because no watch event of that write is needed any more.
    pub fn forget(&self, uid: &str) {
        self.echoes.remove(uid);
    }

    /// Patches the metadata of `object`. Sends nothing if the patch would change nothing. Fails if the server rejects the patch or
    /// cannot be reached.
    pub async fn metadata(&self, object: &K, patch: &MetadataPatch) -> Result<Written, WriteError> {
        if patch.changes_nothing_of(object) {
            return Ok(Written::Done);
        }
        self.send(object, None, patch.body(object)).await
    }

    /// Patches fields of the status of `object`, without comparing: call it only if something changes. The patch carries the
    /// resourceVersion of `object`, or that of a newer write of this process, because a wrong status would not be detected later. The
    /// write fails with a conflict (409) if the object has changed since that version. To have it fail also after a change that came before a
    /// write of [`metadata`](Self::metadata), let that write [claim](MetadataPatch::claim).
    pub async fn status(&self, object: &K, status: Value) -> Result<Written, WriteError> {
        let written = self.newer_write(object).map(|version| version.to_string());
        let resource_version = written.or_else(|| object.meta().resource_version.clone());
        let metadata = json!({ "uid": object.meta().uid, "resourceVersion": resource_version });
        self.send(object, Some("status"), json!({ "metadata": metadata, "status": status })).await
    }

    /// Sends a strategic merge patch of `object` or of its `subresource`, and reads only the metadata of the response. On success,
    /// remembers the new resourceVersion, so that older events of the object are [stale](Stale) until the watch event of the write
    /// arrives. A 404, and a 422 that shows that the object is being deleted or was replaced, are [`Written::Gone`]; any other error
    /// names the object.
    async fn send(
        &self,
        object: &K,
        subresource: Option<&'static str>,
        body: impl Serialize + Debug,
    ) -> Result<Written, WriteError> {
        let ObjectMeta { namespace, name, .. } = object.meta();
        let (namespace, name) = (namespace.as_deref(), name.as_deref().unwrap_or_default());
        let (request, patch) = (Request::new(K::url_path(&(), namespace)), Patch::Strategic(body));
        let request = match subresource {
            Some(subresource) => {
                request.patch_subresource(subresource, name, &PatchParams::default(), &patch)
            }
            None => request.patch(name, &PatchParams::default(), &patch),
        };
        drop(patch);
        let answer = match request {
            Ok(mut request) => {
                request.headers_mut().insert(ACCEPT, METADATA);
                self.client.request::<WithMetadata<WrittenVersion>>(request).await
            }
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match answer {
            Ok(answer) => {
                self.expect_echo(object, answer.metadata.resource_version.as_deref());
                Ok(Written::Done)
            }
            Err(kube::Error::Api(status)) if status.code == 404 || shows_deletion(&status) => {
                Ok(Written::Gone)
            }
            Err(source) => Err(WriteError {
                what: subresource.unwrap_or("metadata"),
                kind: K::kind(&()).into_owned(),
                name: full_name(namespace, name),
                source: Box::new(source),
            }),
        }
    }

    /// Forgets the writes whose watch event is no longer expected, at most once in [`ECHO_TIME`], so that the average cost per write is
    /// constant.
    fn remove_expired(&self, now: Instant) {
        let is_expected = |at: Instant| now.saturating_duration_since(at) < ECHO_TIME;
        let mut cleaned = self.cleaned.lock();
        if !is_expected(*cleaned) {
            *cleaned = now;
            self.echoes.retain(|_, echo| is_expected(echo.written));
        }
    }

    /// Remembers a write until its watch event arrives. `written` is the resourceVersion in the response; if it is not newer than
    /// `object`, nothing was changed and no event will come.
    fn expect_echo(&self, object: &K, written: Option<&str>) {
        let meta = object.meta();
        if let (Some(uid), Some(new)) = (&meta.uid, version(written))
            && version(meta.resource_version.as_deref()).is_some_and(|old| old < new)
        {
            let now = Instant::now();
            self.remove_expired(now);
            let mut last = self.echoes.entry(uid.clone()).or_insert(Echo { version: new, written: now });
            *last = Echo { version: new.max(last.version), written: now };
        }
    }
}

/// The metadata in the response to a write. Only the resourceVersion of the written object is decoded.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenVersion {
    resource_version: Option<String>,
}

/// Returns `true` for a 422 whose causes name only `metadata.finalizers` (the deletion has begun) or `metadata.uid` (the name belongs
/// to another object by now).
fn shows_deletion(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    status.code == 422
        && !causes.is_empty()
        && causes.iter().all(|cause| matches!(cause.field.as_str(), "metadata.finalizers" | "metadata.uid"))
}

/// Parses a resourceVersion; `None` if it is missing or not a number. Resource versions are compared as numbers (Kubernetes API
/// concepts, "Resource versions").
fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;

    use super::*;
    use crate::testing::pod;

    /// Writes once to a server that responds with `answer`. Returns the writer, the result, and the request that the server received.
    async fn write(code: u16, answer: Value) -> (Writer<Pod>, Result<Written, WriteError>, Request<Body>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let writer = Writer::new(Client::new(service, "default"));
        let patch = MetadataPatch::default().annotate("k", "v").claim();
        let pod = pod("default", "web");
        let (written, asked) = tokio::join!(writer.metadata(&pod, &patch), async {
            let (asked, reply) = server.next_request().await.expect("one request");
            let body = serde_json::to_vec(&answer).unwrap();
            reply.send_response(Response::builder().status(code).body(Body::from(body)).unwrap());
            asked
        });
        (writer, written, asked)
    }

    fn refusal(code: u16, fields: &[&str]) -> Value {
        let causes: Vec<_> =
            fields.iter().map(|field| json!({ "field": field, "reason": "r", "message": "m" })).collect();
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Invalid",
            "message": "no", "details": { "causes": causes } })
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_event_never_arrives_expires() {
        let answer = json!({ "metadata": { "name": "web", "resourceVersion": "5" } });
        let (writer, _, _) = write(200, answer).await;
        let stale = writer.fresh(&pod("default", "web")).unwrap_err();
        assert!(
            stale.transient() && stale.retry_after().is_none() && stale.pending().is_some(),
            "a handler that reads the newest object need not wait"
        );
        tokio::time::advance(ECHO_TIME).await;
        assert_eq!(writer.fresh(&pod("default", "web")), Ok(()));
    }

    #[tokio::test]
    async fn an_event_older_than_our_write_is_stale_until_the_event_of_the_write_arrives() {
        let answer = json!({ "metadata": { "name": "web", "resourceVersion": "5" } });
        let (writer, written, asked) = write(200, answer).await;
        assert_eq!(written.unwrap(), Written::Done);
        assert_eq!(asked.uri().path(), "/api/v1/namespaces/default/pods/web");
        assert_eq!(asked.headers()["content-type"], "application/strategic-merge-patch+json");
        let form = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(asked.headers().get_all("accept").iter().collect::<Vec<_>>(), [form], "and no more");
        let state = |version: &str| {
            let mut pod = pod("default", "web");
            pod.metadata.resource_version = Some(version.into());
            pod
        };
        assert_eq!([writer.fresh(&state("1")), writer.fresh(&state("4"))], [Err(Stale), Err(Stale)]);
        assert_eq!(writer.fresh(&state("5")), Ok(()), "the echo");
        assert_eq!(writer.fresh(&state("4")), Ok(()), "nothing is awaited any more");
    }

    #[tokio::test]
    async fn a_status_patch_carries_the_newest_version_seen_or_written() {
        let answer = json!({ "metadata": { "name": "web", "resourceVersion": "5" } });
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let writer = Writer::<Pod>::new(Client::new(service, "default"));
        let pod = pod("default", "web");
        let mut versions = Vec::new();
        for _ in 0..2 {
            let (written, ()) = tokio::join!(writer.status(&pod, json!({ "phase": "Running" })), async {
                let (asked, reply) = server.next_request().await.expect("one request");
                let body = asked.into_body().collect_bytes().await.expect("it is all there");
                let body: Value = serde_json::from_slice(&body).expect("it is JSON");
                versions.push(body["metadata"]["resourceVersion"].clone());
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                reply.send_response(Response::new(body));
            });
            assert_eq!(written.unwrap(), Written::Done);
        }
        assert_eq!(versions, ["1", "5"]);
    }

    #[tokio::test]
    async fn a_response_about_the_object_itself_is_no_failure() {
        for (code, fields, expected) in [
            (404, &[][..], Written::Gone),
            (422, &["metadata.finalizers"], Written::Gone),
            (422, &["metadata.uid"], Written::Gone),
        ] {
            let (_, written, _) = write(code, refusal(code, fields)).await;
            assert_eq!(written.unwrap(), expected, "{code} {fields:?}");
        }
    }

    #[tokio::test]
    async fn any_other_refusal_is_a_failure_that_names_the_object() {
        for (code, fields, transient) in [
            (422, &["metadata.annotations"][..], false),
            (422, &["metadata.uid", "metadata.annotations"], false),
            (403, &[], false),
            (429, &[], true),
            (409, &[], true),
        ] {
            let (_, written, _) = write(code, refusal(code, fields)).await;
            let error = written.unwrap_err();
            assert_eq!(error.to_string(), "write the metadata of Pod default/web");
            assert_eq!((error.refused(), error.transient()), (true, transient), "{code} {fields:?}");
            assert_eq!(error.pending().is_some(), code == 409, "{code}");
        }
        let (_, written, _) = write(500, refusal(500, &[])).await;
        assert!(!written.unwrap_err().refused(), "it may have been written");
    }

    #[tokio::test]
    async fn a_patch_without_a_change_is_not_sent() {
        let (service, server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        drop(server);
        let writer = Writer::<Pod>::new(Client::new(service, "default"));
        let mut pod = pod("default", "web");
        pod.metadata.annotations = Some([("k".to_owned(), "v".to_owned())].into());
        let patch = MetadataPatch::default().annotate("k", "v").claim();
        assert_eq!(writer.metadata(&pod, &patch).await.unwrap(), Written::Done);
    }
}
