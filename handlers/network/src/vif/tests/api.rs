//! An API server that has one pod and knows one verb: the strategic merge patch of metadata.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// How one patch is answered instead of being applied.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Not applied; this code, and causes with these fields.
    Refuse(u16, Vec<&'static str>),
    /// Not applied: somebody else changed the pod at the same time.
    Overtaken,
    /// Applied; the connection breaks before the answer comes.
    Lost,
    /// Not applied; the connection breaks.
    Broken,
}

pub(super) struct Api {
    pod: Mutex<Value>,
    patches: Mutex<Vec<Value>>,
    answers: Mutex<VecDeque<Answer>>,
}

impl Api {
    pub(super) fn new(pod: Value) -> Arc<Self> {
        Arc::new(Self { pod: Mutex::new(pod), patches: Mutex::default(), answers: Mutex::default() })
    }

    pub(super) fn client(self: &Arc<Self>) -> Client {
        let api = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = Arc::clone(&api);
            async move { api.serve(request).await }
        });
        Client::new(service, "default")
    }

    /// The pod as it is.
    pub(super) fn pod(&self) -> Pod {
        serde_json::from_value(self.pod.lock().unwrap().clone()).unwrap()
    }

    /// Somebody else changes the pod.
    pub(super) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut pod = self.pod.lock().unwrap();
        change(&mut pod);
        bump(&mut pod);
    }

    /// The next patch is answered so.
    pub(super) fn answer(&self, answer: Answer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// The bodies of all patches, those that were refused too.
    pub(super) fn patches(&self) -> Vec<Value> {
        self.patches.lock().unwrap().clone()
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        assert_eq!(request.method(), Method::PATCH, "the handler reads from the event");
        assert_eq!(request.uri().path(), "/api/v1/namespaces/default/pods/web");
        assert_eq!(request.headers()["content-type"], "application/strategic-merge-patch+json");
        let body = request.into_body().collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap();
        self.patches.lock().unwrap().push(patch.clone());
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(Answer::Refuse(code, fields)) => Ok(refusal(code, &fields)),
            Some(Answer::Overtaken) => {
                bump(&mut self.pod.lock().unwrap());
                Ok(refusal(409, &[]))
            }
            Some(Answer::Broken) => Err(std::io::ErrorKind::ConnectionReset.into()),
            Some(Answer::Lost) => {
                self.apply(&patch);
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            None => Ok(self.apply(&patch)),
        }
    }

    fn apply(&self, patch: &Value) -> Response<Body> {
        let mut pod = self.pod.lock().unwrap();
        let changes = &patch["metadata"];
        assert_eq!(changes["uid"], pod["metadata"]["uid"]);
        if changes
            .get("resourceVersion")
            .is_some_and(|version| *version != pod["metadata"]["resourceVersion"])
        {
            return refusal(409, &[]);
        }
        if changes.get("finalizers").is_some() && pod["metadata"].get("deletionTimestamp").is_some() {
            return refusal(422, &["metadata.finalizers"]);
        }
        let before = pod.clone();
        for (key, value) in changes["annotations"].as_object().into_iter().flatten() {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Value::Null => annotations.remove(key),
                value => annotations.insert(key.clone(), value.clone()),
            };
        }
        let finalizers = pod["metadata"]["finalizers"].as_array_mut().unwrap();
        let named = |key: &str| changes[key].as_array().cloned().unwrap_or_default();
        let removed = named("$deleteFromPrimitiveList/finalizers");
        finalizers.retain(|finalizer| !removed.contains(finalizer));
        let added = named("finalizers").into_iter().filter(|finalizer| !finalizers.contains(finalizer));
        let added: Vec<_> = added.collect();
        finalizers.extend(added);
        if *pod != before {
            bump(&mut pod);
        }
        response(200, &pod)
    }
}

fn bump(pod: &mut Value) {
    let version: u64 = pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    pod["metadata"]["resourceVersion"] = json!((version + 1).to_string());
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
