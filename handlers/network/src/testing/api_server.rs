//! A simulated API server with one object. It supports the requests of the handlers: patches of the
//! metadata and the status, and the lists of `Endpoints` and of pods.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The maximum size of the annotations of an object in bytes, keys and values together
/// (`TotalAnnotationSizeLimitB` of Kubernetes' apimachinery).
pub(crate) const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The key of another program's annotation, and the name of its finalizer. Every object has both,
/// and they must never change.
pub(crate) const THEIRS: &str = "example.com/theirs";

/// The response to a patch that is not handled normally.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The patch is not applied. The response is an error with this code, and with causes that name
    /// these fields.
    Refuse(u16, Vec<&'static str>),
    /// The patch is not applied, because it conflicts with a change at the same time.
    Overtaken,
    /// The patch is applied, but the connection breaks before the response.
    Lost,
    /// The patch is not applied, because the connection breaks.
    Broken,
}

/// A change of the object by another client.
type Change = Box<dyn FnOnce(&mut Value) + Send>;

/// A simulated API server that has one object of kind `K`, `default/web` unless it has another name.
pub(crate) struct ApiServer<K> {
    name: String,
    object: Mutex<Value>,
    endpoints: Mutex<Vec<Value>>,
    patches: Mutex<Vec<(&'static str, Value)>>,
    answers: Mutex<VecDeque<Answer>>,
    /// Another client's change of the object before the next patch.
    before: Mutex<Option<Change>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> ApiServer<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
{
    /// Creates a server whose object has this spec and status, and an annotation and a finalizer of
    /// another program.
    pub(crate) fn new(spec: &Value, status: &Value) -> Arc<Self> {
        Self::named("web", spec, status)
    }

    /// Creates a server whose object has this name, and the UID `uid-` followed by the name.
    pub(crate) fn named(name: &str, spec: &Value, status: &Value) -> Arc<Self> {
        let object = json!({
            "metadata": { "namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
                "annotations": { THEIRS: "stays" }, "finalizers": [THEIRS] },
            "spec": spec,
            "status": status,
        });
        Arc::new(Self {
            name: name.to_owned(),
            object: Mutex::new(object),
            endpoints: Mutex::default(),
            patches: Mutex::default(),
            answers: Mutex::default(),
            before: Mutex::default(),
            kind: PhantomData,
        })
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let api = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = Arc::clone(&api);
            async move { api.serve(request).await }
        });
        Client::new(service, "default")
    }

    /// Returns a client of all these servers, each of which serves its own object.
    pub(crate) fn client_of(servers: &[Arc<Self>]) -> Client {
        let servers = servers.to_vec();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_at = |api: &&Arc<Self>| request.uri().path().split('/').any(|part| part == api.name);
            let api = servers.iter().find(is_at).cloned().expect("the object exists");
            async move { api.serve(request).await }
        });
        Client::new(service, "default")
    }

    /// Returns the current object.
    pub(crate) fn object(&self) -> Arc<K> {
        Arc::new(serde_json::from_value(self.object.lock().clone()).unwrap())
    }

    /// Changes the object like another client.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut object = self.object.lock();
        change(&mut object);
        bump(&mut object);
    }

    /// Annotates the object like another client.
    pub(crate) fn annotate(&self, key: &str, text: &str) {
        self.change(|object| object["metadata"]["annotations"][key] = json!(text));
    }

    /// Adds, or replaces, an annotation that is so large that only `bytes` remain for further annotations.
    pub(crate) fn leave_room(&self, bytes: usize) {
        const KEY: &str = "example.com/large";
        self.change(|object| {
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove(KEY);
            let large = ANNOTATIONS_LIMIT - size(annotations) - KEY.len() - bytes;
            annotations.insert(KEY.to_owned(), json!("x".repeat(large)));
        });
    }

    /// Applies a patch of the `metadata` or the `status`, as `what` says, and returns the HTTP status code.
    pub(crate) fn arrives(&self, what: &str, patch: &Value) -> u16 {
        self.apply(what, patch).status().as_u16()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        self.object().meta().annotations.as_ref().and_then(|annotations| annotations.get(key).cloned())
    }

    pub(crate) fn finalizers(&self) -> Vec<String> {
        self.object().meta().finalizers.clone().unwrap_or_default()
    }

    /// Adds an `Endpoints` object with this metadata. The server lists these objects with one per page.
    pub(crate) fn add_endpoints(&self, metadata: &Value) {
        self.endpoints.lock().push(json!({ "metadata": metadata }));
    }

    /// Changes the object like another client, just before the next patch arrives.
    pub(crate) fn change_before_next(&self, change: impl FnOnce(&mut Value) + Send + 'static) {
        *self.before.lock() = Some(Box::new(change));
    }

    /// Adds `answer` to the queue of responses to the next patches, one for each patch.
    pub(crate) fn answer(&self, answer: Answer) {
        self.answers.lock().push_back(answer);
    }

    /// Returns all patches that were sent, including refused ones: each is `metadata` or `status`, and the body.
    pub(crate) fn patches(&self) -> Vec<(&'static str, Value)> {
        self.patches.lock().clone()
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        if request.method() == Method::GET {
            return Ok(self.list(request.uri()));
        }
        assert_eq!(request.method(), Method::PATCH, "the handlers read from the event");
        assert_eq!(request.headers()["content-type"], "application/strategic-merge-patch+json");
        let object = format!("{}/{}", K::url_path(&(), Some("default")), self.name);
        let what = match request.uri().path().strip_prefix(&object) {
            Some("") => "metadata",
            Some("/status") => "status",
            _ => panic!("there is no {}", request.uri()),
        };
        let body = request.into_body().collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap();
        self.patches.lock().push((what, patch.clone()));
        if let Some(change) = self.before.lock().take() {
            self.change(change);
        }
        let answer = self.answers.lock().pop_front();
        match answer {
            Some(Answer::Refuse(code, fields)) => Ok(refusal(code, &fields)),
            Some(Answer::Overtaken) => {
                bump(&mut self.object.lock());
                Ok(refusal(409, &[]))
            }
            Some(Answer::Broken) => Err(std::io::ErrorKind::ConnectionReset.into()),
            Some(Answer::Lost) => {
                self.apply(what, &patch);
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            None => Ok(self.apply(what, &patch)),
        }
    }

    fn list(&self, uri: &http::Uri) -> Response<Body> {
        let all = match uri.path() {
            "/api/v1/endpoints" => self.endpoints.lock().clone(),
            "/api/v1/pods" => vec![self.object.lock().clone()],
            path => panic!("the handlers read {path} from the event"),
        };
        let query = uri.query().unwrap_or_default();
        let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let page: usize = token.map_or(0, |token| token.parse().unwrap());
        let next = (page + 1 < all.len()).then(|| (page + 1).to_string());
        let items: Vec<_> = all.iter().skip(page).take(1).collect();
        let list = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": { "continue": next }, "items": items });
        response(200, &list)
    }

    fn apply(&self, what: &str, patch: &Value) -> Response<Body> {
        let mut object = self.object.lock();
        let mut patched = object.clone();
        let changes = &patch["metadata"];
        assert_eq!(changes["uid"], object["metadata"]["uid"]);
        if changes
            .get("resourceVersion")
            .is_some_and(|claimed| *claimed != object["metadata"]["resourceVersion"])
        {
            return refusal(409, &[]);
        }
        if changes.get("finalizers").is_some() && object["metadata"].get("deletionTimestamp").is_some() {
            return refusal(422, &["metadata.finalizers"]);
        }
        let annotations = patched["metadata"]["annotations"].as_object_mut().unwrap();
        for (key, value) in changes["annotations"].as_object().into_iter().flatten() {
            match value {
                Value::Null => annotations.remove(key),
                value => annotations.insert(key.clone(), value.clone()),
            };
        }
        if size(annotations) > ANNOTATIONS_LIMIT {
            return refusal(422, &["metadata.annotations"]);
        }
        let finalizers = patched["metadata"]["finalizers"].as_array_mut().unwrap();
        let named = |key: &str| changes[key].as_array().cloned().unwrap_or_default();
        let removed = named("$deleteFromPrimitiveList/finalizers");
        finalizers.retain(|finalizer| !removed.contains(finalizer));
        let added = named("finalizers").into_iter().filter(|finalizer| !finalizers.contains(finalizer));
        let added: Vec<_> = added.collect();
        finalizers.extend(added);
        if what == "status" {
            let ingress = &patch["status"]["loadBalancer"]["ingress"];
            if K::kind(&()) == "Service" && !ingress.is_null() && object["spec"]["type"] != "LoadBalancer" {
                return refusal(422, &["status.loadBalancer.ingress"]);
            }
            patched["status"]["loadBalancer"]["ingress"] = patch["status"]["loadBalancer"]["ingress"].clone();
        }
        if *object != patched {
            bump(&mut patched);
            *object = patched;
        }
        response(200, &object)
    }
}

fn size(annotations: &serde_json::Map<String, Value>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().unwrap().len()).sum()
}

fn bump(object: &mut Value) {
    let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

fn refusal(code: u16, fields: &[&str]) -> Response<Body> {
    let causes: Vec<_> =
        fields.iter().map(|field| json!({ "field": field, "reason": "FieldValueInvalid" })).collect();
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "refused", "reason": "Refused", "details": { "causes": causes } });
    response(code, &status)
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}
