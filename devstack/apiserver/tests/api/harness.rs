//! One server, a namespace and a group of custom resources of its own for each test, and requests without types.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options, Proxy, testing};
use tokio::time::Instant;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const JSON: &str = "application/json";

/// The server, namespace and names of a test.
#[derive(Clone)]
pub(crate) struct Place {
    client: Client,
    /// A namespace that only this test uses.
    pub(crate) namespace: String,
    /// A word that only this test uses in the names of cluster-wide objects.
    pub(crate) word: String,
}

/// An answer: the HTTP status and the body, null where it is not JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have this code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16, what: &str) -> Value {
        assert_eq!(self.code, code, "{what}: {}", self.body);
        self.body
    }

    /// Holds a refusal against its code, reason and the fields of its causes.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, fields: &[&str], what: &str) {
        let causes = self.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let mut found: Vec<_> =
            causes.iter().map(|cause| cause["field"].as_str().unwrap_or_default()).collect();
        found.sort_unstable();
        found.dedup();
        let given = (self.code, self.body["reason"].as_str().unwrap_or_default(), found);
        assert_eq!(given, (code, reason, fields.to_vec()), "{what}: {}", self.body);
    }
}

impl Place {
    async fn new(client: Client) -> Self {
        let word = format!("t{:08x}", unique());
        let place = Self { client, namespace: format!("api-{word}"), word };
        let namespace = json!({"metadata": {"name": place.namespace}});
        place.post("/api/v1/namespaces", &namespace).await.expect(201, "the namespace of the test");
        place
            .until("the namespace has its service account", || async {
                place.get(&place.core("serviceaccounts/default")).await.code == 200
            })
            .await;
        place
    }

    /// The group of the test's custom resources.
    pub(crate) fn group(&self) -> String {
        format!("{}.example.org", self.word)
    }

    /// A path of the core group in the test's namespace.
    pub(crate) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) async fn send(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Answer {
        self.send_accepting(method, path, content_type, body, JSON).await
    }

    pub(crate) async fn send_accepting(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
        accept: &str,
    ) -> Answer {
        let (code, bytes) = self.raw(method, path, content_type, body, accept).await;
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    async fn raw(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
        accept: &str,
    ) -> (u16, Vec<u8>) {
        let mut request = http::Request::builder().method(method).uri(path).header("accept", accept);
        if !body.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = self.client.send(request).await.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        let code = response.status().as_u16();
        let bytes =
            response.into_body().collect_bytes().await.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        (code, bytes.to_vec())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, JSON, Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, JSON, body.to_string().into()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, JSON, body.to_string().into()).await
    }

    pub(crate) async fn patch(&self, path: &str, content_type: &str, body: &Value) -> Answer {
        self.send("PATCH", path, content_type, body.to_string().into()).await
    }

    /// A DELETE; null stands for no body.
    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        self.send("DELETE", path, JSON, body).await
    }

    /// The events of a watch of one second, or the refusal.
    pub(crate) async fn watch(&self, path: &str) -> Result<Vec<Value>, Answer> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=true&timeoutSeconds=1");
        let (code, bytes) = self.raw("GET", &path, JSON, Vec::new(), JSON).await;
        if code != 200 {
            return Err(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) });
        }
        Ok(serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect())
    }

    /// The version of a list right now.
    pub(crate) async fn version(&self, path: &str) -> String {
        let list = self.get(path).await.expect(200, path);
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// Polls until something holds that the real server's controllers bring about in their own time.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds().await {
            assert!(Instant::now() < deadline, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn clean_up(&self) {
        for path in crate::rows::cluster_wide(self) {
            self.patch(&path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
            self.delete(&path, &Value::Null).await;
        }
        self.delete(&format!("/api/v1/namespaces/{}", self.namespace), &Value::Null).await;
    }
}

fn unique() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) & 0xffff_ffff).unwrap()
}

/// The names and kinds of events, in order.
pub(crate) fn reported(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| {
            (
                event["type"].as_str().unwrap_or_default(),
                event["object"]["metadata"]["name"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

async fn run<F>(client: Client, test: impl FnOnce(Arc<Place>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let place = Arc::new(Place::new(client).await);
    let outcome = tokio::spawn(test(Arc::clone(&place))).await;
    place.clean_up().await;
    if let Err(failed) = outcome {
        std::panic::resume_unwind(failed.into_panic());
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false; // a refusal is what a test asks for
    Client::try_from(config).unwrap()
}

pub(crate) async fn on_the_embedded_server<F>(test: impl FnOnce(Arc<Place>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let server = ApiServer::start(Options::default()).await.unwrap();
    run(client(Kubeconfig::from_yaml(&server.kubeconfig()).unwrap()).await, test).await;
}

pub(crate) async fn through_a_proxy<F>(test: impl FnOnce(Arc<Place>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let server = ApiServer::start(Options::default()).await.unwrap();
    let proxy = Proxy::start(Kubeconfig::from_yaml(&server.kubeconfig()).unwrap()).await.unwrap();
    run(client(Kubeconfig::from_yaml(&proxy.kubeconfig()).unwrap()).await, test).await;
}

pub(crate) async fn on_a_real_server<F>(test: impl FnOnce(Arc<Place>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let path = testing::real_kubeconfig();
    run(client(Kubeconfig::read_from(path).unwrap()).await, test).await;
}
