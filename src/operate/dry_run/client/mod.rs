//! A Kubernetes client that sends every write with `dryRun=All` and records it in the plan.
//!
//! The response of the server is passed on to the handler: the server checks the write, including admission, and returns the object as
//! the write would leave it. The plan shows the fields that the write names, with their current and new values. Calls that no server
//! can make without effect (`exec`, `proxy`) are recorded and not sent.

mod changes;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode, request::Parts};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use self::changes::changes;
pub(super) use self::changes::{AcceptedWrite, combined};
use self::request::{RequestKind, WriteTarget, as_dry_run, as_empty_patch, as_read};
use super::plan::{PlanLog, PlannedObject, PlannedStep, StepDetail};

/// The value of [`PlannedStep::by`] for writes to the Kubernetes API.
const KUBERNETES: &str = "kubernetes";

/// The writes of each object that the server accepted as dry runs, by the UID of the object.
pub(super) type AcceptedWrites = Arc<Mutex<BTreeMap<String, Vec<AcceptedWrite>>>>;

/// Wraps `client`: writes are sent as dry runs and added to `log`; those that the server accepts are also added to `accepted`.
pub(super) fn recording(client: Client, log: &PlanLog, accepted: &AcceptedWrites) -> Client {
    let namespace = client.default_namespace().to_owned();
    let dry_run = DryRunClient { server: client, log: log.clone(), accepted: Arc::clone(accepted) };
    let service = service_fn(move |request: Request<Body>| {
        let dry_run = dry_run.clone();
        // The future runs in the caller's task, so the plan knows the running handler.
        async move {
            match RequestKind::of(request.method(), request.uri()) {
                RequestKind::Read => Ok(dry_run.server.send(request).await?),
                RequestKind::Write(target) => dry_run.write(&target, request).await,
                RequestKind::Unsupported => Ok(dry_run.unsupported(request.method(), request.uri().path())),
            }
        }
    });
    Client::new(service, namespace)
}

/// A client that sends writes as dry runs.
#[derive(Clone)]
struct DryRunClient {
    server: Client,
    log: PlanLog,
    accepted: AcceptedWrites,
}

impl DryRunClient {
    /// Sends a write as a dry run, records it in the plan according to the response, and returns a response for the handler. Fails if there
    /// is no response.
    async fn write(&self, target: &WriteTarget, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let Some(dry_run) = as_dry_run(&parts, &body) else {
            return Ok(self.unsupported(&parts.method, parts.uri.path()));
        };
        let answer = self.send(dry_run).await?;
        let changes_object = matches!(parts.method, Method::PATCH | Method::PUT);
        let present = if changes_object { self.present(&parts).await? } else { Value::Null };
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let write = Write { target, method: &parts.method, body, present };
        match DryRunOutcome::of(&answer) {
            DryRunOutcome::Accepted => {
                let step = write.step(Some(answer.body()));
                if !changes_object || !step.with.is_empty() {
                    self.log.add(Some(write.object(answer.body())), step);
                    if changes_object {
                        self.changed(target, write.present, answer.body());
                    }
                }
            }
            // A controller handles the newer version next.
            DryRunOutcome::Conflict => self.changed(target, write.present.clone(), &write.present),
            DryRunOutcome::Refused(reason) => {
                let step = PlannedStep { refused: Some(reason), ..write.step(None) };
                self.log.add(Some(write.object(&Value::Null)), step);
            }
            DryRunOutcome::NoDryRun(reason) => {
                let step = PlannedStep { unknown: Some(reason), ..write.step(None) };
                self.log.add(Some(write.object(&Value::Null)), step);
                let object = match parts.method {
                    Method::DELETE => json!({ "kind": "Status", "status": "Success" }),
                    _ if write.present.is_null() => write.body,
                    _ => write.present,
                };
                return Ok(response(StatusCode::OK, &object));
            }
            DryRunOutcome::Undecided => {}
        }
        Ok(answer.map(|body| Body::from(body.to_string().into_bytes())))
    }

    /// Returns the current state of the object that the request writes; null if it does not exist or must not be read. Fails if the API
    /// server does not respond.
    async fn present(&self, parts: &Parts) -> Result<Value, BoxError> {
        for request in [as_empty_patch(parts), as_read(parts)].into_iter().flatten() {
            let answer = self.send(request).await?;
            if answer.status().is_success() {
                return Ok(answer.into_body());
            }
        }
        Ok(Value::Null)
    }

    /// Sends a request and reads the response, whatever its status. The body is null if it is not JSON. Fails if there is no response.
    async fn send(&self, (parts, body): (Parts, Vec<u8>)) -> Result<Response<Value>, BoxError> {
        let request = Request::from_parts(parts, Body::from(body));
        let (mut parts, body) = self.server.send(request).await?.into_parts();
        let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
        parts.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(parts, body))
    }

    /// Records a write that would change the stored state `before` of an object to `after`, so that the handlers get the object once more.
    fn changed(&self, target: &WriteTarget, before: Value, after: &Value) {
        let Some(uid) = after["metadata"]["uid"].as_str().filter(|_| target.is_object()) else { return };
        let write = AcceptedWrite { before, after: after.clone() };
        self.accepted.lock().entry(uid.to_owned()).or_default().push(write);
    }

    /// Records a call that cannot be made without effect, and responds to it with 405.
    fn unsupported(&self, method: &Method, path: &str) -> Response<Body> {
        let detail = StepDetail::Argument { name: "request".into(), value: format!("{method} {path}") };
        let (by, what) = (KUBERNETES.into(), "call".into());
        self.log
            .add(None, PlannedStep { by, what, with: vec![detail], last: true, ..PlannedStep::default() });
        let message = format!("a dry run cannot make this call without effect: {method} {path}");
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 405, "reason": "MethodNotAllowed", "message": message });
        response(StatusCode::METHOD_NOT_ALLOWED, &status)
    }
}

/// A write request to the Kubernetes API, and the state of the object before it.
struct Write<'a> {
    target: &'a WriteTarget,
    method: &'a Method,
    /// The body of the request; null if it is not JSON.
    body: Value,
    /// The object before the write; null if it is not known.
    present: Value,
}

impl Write<'_> {
    /// Returns the step of the plan for this write. `after` is the object as the write would leave it; `None` if that is not known.
    fn step(&self, after: Option<&Value>) -> PlannedStep {
        let verb = match *self.method {
            Method::POST => "create",
            Method::DELETE if self.target.name.is_none() => "delete all",
            Method::DELETE => "delete",
            _ => "write",
        };
        let what = match self.target.subresource.as_deref() {
            None | Some("status") => verb.to_owned(),
            Some(subresource) => format!("{verb} {subresource}"),
        };
        let secret = self.target.plural == "secrets";
        let deletes = *self.method == Method::DELETE;
        let with = if deletes { Vec::new() } else { changes(&self.body, &self.present, after, secret) };
        PlannedStep { by: KUBERNETES.into(), what, with, ..PlannedStep::default() }
    }

    /// Returns the object that is written. Its fields come from the path of the request, from `answer` (the response), from the current
    /// object, and from the body of the request, in this order.
    fn object(&self, answer: &Value) -> PlannedObject {
        let WriteTarget { namespace, plural, name, .. } = self.target;
        let text = |pointer: &str| {
            let objects = [answer, &self.present, &self.body].into_iter();
            let objects = objects.filter(|object| object["kind"] != "Status");
            let mut texts = objects.filter_map(|object| object.pointer(pointer)?.as_str());
            texts.find(|text| !text.is_empty()).map(str::to_owned)
        };
        let own = self.target.is_object() || name.is_none();
        let given_name = || text("/metadata/name").or_else(|| text("/metadata/generateName"));
        PlannedObject {
            kind: text("/kind").filter(|_| own).unwrap_or_else(|| plural.clone()),
            namespace: namespace.clone(),
            name: name.clone().or_else(given_name).unwrap_or_default(),
            // Each dry run of a creation answers another UID.
            uid: text("/metadata/uid").filter(|_| name.is_some() && own).unwrap_or_default(),
        }
    }
}

/// The result of a write that was sent as a dry run.
#[derive(Debug, PartialEq, Eq)]
enum DryRunOutcome {
    /// The server would accept the write.
    Accepted,
    /// The write conflicts (409): the object has changed, or exists already.
    Conflict,
    /// The server would reject the write, for this reason.
    Refused(String),
    /// The server could not check the write, because an admission webhook does not support dry runs. The field is the message of the
    /// server.
    NoDryRun(String),
    /// Acceptance is not known: the object does not exist (404), or the server is not available now (401, 408, 429, 5xx).
    Undecided,
}

impl DryRunOutcome {
    /// Classifies the response of the server to a write that was sent as a dry run.
    fn of(answer: &Response<Value>) -> Self {
        let code = answer.status().as_u16();
        let text = |field: &str| answer.body()[field].as_str().unwrap_or_default();
        let reason = || format!("{code} {} {}", text("reason"), text("message")).trim_end().to_owned();
        match code {
            200..300 => Self::Accepted,
            409 => Self::Conflict,
            400 if text("message").contains("does not support dry run") => Self::NoDryRun(reason()),
            401 | 404 | 408 | 429 => Self::Undecided,
            400..500 => Self::Refused(reason()),
            _ => Self::Undecided,
        }
    }
}

/// Returns a response with this status and JSON body.
fn response(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
