//! An API server that has one service and knows what the handlers of services ask: patches of its metadata and its status,
//! and the list of `Endpoints`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// How one patch is answered instead of being applied.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Not applied; this code, and causes with these fields.
    Refuse(u16, Vec<&'static str>),
    /// Applied; the connection breaks before the answer comes.
    Lost,
}

pub(crate) struct Api {
    service: Mutex<Value>,
    endpoints: Mutex<Vec<Value>>,
    patches: Mutex<Vec<(&'static str, Value)>>,
    answers: Mutex<VecDeque<Answer>>,
}

impl Api {
    /// With the service `default/web` and this spec.
    pub(crate) fn new(spec: &Value) -> Arc<Self> {
        let service = json!({
            "metadata": { "namespace": "default", "name": "web", "uid": "uid-web", "resourceVersion": "1",
                "annotations": { "example.com/theirs": "stays" }, "finalizers": ["example.com/theirs"] },
            "spec": spec,
            "status": { "loadBalancer": {} },
        });
        Arc::new(Self {
            service: Mutex::new(service),
            endpoints: Mutex::default(),
            patches: Mutex::default(),
            answers: Mutex::default(),
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

    /// The service as it is.
    pub(crate) fn service(&self) -> Arc<Service> {
        Arc::new(serde_json::from_value(self.service.lock().unwrap().clone()).unwrap())
    }

    /// Somebody else changes the service.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut service = self.service.lock().unwrap();
        change(&mut service);
        bump(&mut service);
    }

    /// Somebody annotates the service.
    pub(crate) fn annotate(&self, key: &str, text: &str) {
        self.change(|service| service["metadata"]["annotations"][key] = json!(text));
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        self.service().metadata.annotations.as_ref().and_then(|annotations| annotations.get(key).cloned())
    }

    /// There are such `Endpoints`, in the order of the pages in which they are listed, one a page.
    pub(crate) fn add_endpoints(&self, metadata: &Value) {
        self.endpoints.lock().unwrap().push(json!({ "metadata": metadata }));
    }

    /// The next patch is answered so.
    pub(crate) fn answer(&self, answer: Answer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// What was patched, `metadata` or `status`, and the bodies: those that were refused too.
    pub(crate) fn patches(&self) -> Vec<(&'static str, Value)> {
        self.patches.lock().unwrap().clone()
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        if request.method() == Method::GET {
            return Ok(self.list(request.uri()));
        }
        assert_eq!(request.method(), Method::PATCH, "the handlers read from the event");
        assert_eq!(request.headers()["content-type"], "application/strategic-merge-patch+json");
        let what = match request.uri().path() {
            "/api/v1/namespaces/default/services/web" => "metadata",
            "/api/v1/namespaces/default/services/web/status" => "status",
            other => panic!("there is no {other}"),
        };
        let body = request.into_body().collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap();
        self.patches.lock().unwrap().push((what, patch.clone()));
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(Answer::Refuse(code, fields)) => Ok(refusal(code, &fields)),
            Some(Answer::Lost) => {
                self.apply(what, &patch);
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            None => Ok(self.apply(what, &patch)),
        }
    }

    fn list(&self, uri: &http::Uri) -> Response<Body> {
        assert_eq!(uri.path(), "/api/v1/endpoints", "the handlers read from the event");
        let query = uri.query().unwrap_or_default();
        let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let page: usize = token.map_or(0, |token| token.parse().unwrap());
        let endpoints = self.endpoints.lock().unwrap();
        let next = (page + 1 < endpoints.len()).then(|| (page + 1).to_string());
        let items: Vec<_> = endpoints.iter().skip(page).take(1).cloned().collect();
        let list = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": { "continue": next }, "items": items });
        response(200, &list)
    }

    fn apply(&self, what: &str, patch: &Value) -> Response<Body> {
        let mut service = self.service.lock().unwrap();
        let changes = &patch["metadata"];
        assert_eq!(changes["uid"], service["metadata"]["uid"]);
        assert_eq!(changes.get("resourceVersion"), None, "no write of these handlers is a claim");
        if changes.get("finalizers").is_some() && service["metadata"].get("deletionTimestamp").is_some() {
            return refusal(422, &["metadata.finalizers"]);
        }
        let before = service.clone();
        for (key, value) in changes["annotations"].as_object().into_iter().flatten() {
            let annotations = service["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Value::Null => annotations.remove(key),
                value => annotations.insert(key.clone(), value.clone()),
            };
        }
        let finalizers = service["metadata"]["finalizers"].as_array_mut().unwrap();
        let named = |key: &str| changes[key].as_array().cloned().unwrap_or_default();
        let removed = named("$deleteFromPrimitiveList/finalizers");
        finalizers.retain(|finalizer| !removed.contains(finalizer));
        let added = named("finalizers").into_iter().filter(|finalizer| !finalizers.contains(finalizer));
        let added: Vec<_> = added.collect();
        finalizers.extend(added);
        if what == "status" {
            service["status"]["loadBalancer"]["ingress"] = patch["status"]["loadBalancer"]["ingress"].clone();
        }
        if *service != before {
            bump(&mut service);
        }
        response(200, &service)
    }
}

fn bump(service: &mut Value) {
    let version: u64 = service["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    service["metadata"]["resourceVersion"] = json!((version + 1).to_string());
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
