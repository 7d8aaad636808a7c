//! Writes that the server is asked about and does not make.
//!
//! Every write is sent with `dryRun=All`: the server checks it, admission included, and answers what would be. What that
//! would change is added to the plan, and told to whoever would be told of it by a watch ([`Echoes`]). A write that would
//! be refused is added with the reason. What no server does without effect (`exec`, `proxy`) is not sent at all.

mod answer;
mod asked;
mod difference;
mod echoes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use staffetta_handler::{Plan, PlannedObject, Step, Verdict};
use tower::{BoxError, Service, ServiceExt, service_fn};

use self::answer::{Answer, Refusal};
use self::asked::{Asked, Target, before, dry, read};
use self::difference::{Difference, differences, merged};
pub(crate) use self::echoes::{Echo, Echoes};

/// Who makes the steps of the plan that are writes.
const KUBERNETES: &str = "kubernetes";

/// How often an object is asked for again that changed between two questions.
const ATTEMPTS: u32 = 5;

/// The same client, whose writes are rehearsed.
pub(crate) fn rehearsed(client: Client, plan: &Plan, echoes: &Arc<Echoes>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let inner = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Rehearse { inner, plan: plan.clone(), echoes: Arc::clone(echoes) }, namespace)
}

/// Asks of `S` whatever changes nothing.
#[derive(Clone)]
struct Rehearse<S> {
    inner: S,
    plan: Plan,
    echoes: Arc<Echoes>,
}

impl<S> Service<Request<Body>> for Rehearse<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        // Whoever asks polls this, so that the plan knows whose step it is.
        Box::pin(async move {
            match Asked::of(request.method(), request.uri()) {
                Asked::Read => this.inner.oneshot(request).await.map_err(Into::into),
                Asked::Write(target) => this.write(&target, request).await,
                Asked::Other => Ok(this.cannot(request.method(), request.uri().path())),
            }
        })
    }
}

impl<S> Rehearse<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    async fn write(&self, target: &Target, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let Some(question) = dry(&parts, &body) else {
            return Ok(self.cannot(&parts.method, parts.uri.path()));
        };
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let write = Write { target, method: &parts.method, body };
        let mut answer = self.ask(question.clone()).await?;
        let mut present = None;
        if matches!(parts.method, Method::PATCH | Method::PUT) {
            for _ in 0..ATTEMPTS {
                present = self.present(&parts).await?;
                let still = present.as_ref().is_none_or(|present| version(present) == version(&answer.body));
                if still || !answer.is_success() {
                    break;
                }
                answer = self.ask(question.clone()).await?;
            }
        }
        Ok(match answer.refusal() {
            None => self.planned(&write, present.as_ref(), answer),
            Some(Refusal::Stale) => {
                // The newer state is the retry, as it would be.
                present
                    .filter(|_| write.is_of_object())
                    .into_iter()
                    .for_each(|newer| self.echoes.changed(newer));
                answer.into_response()
            }
            Some(Refusal::Final(why)) => {
                let wished = write.wished(present.as_ref().unwrap_or(&Value::Null));
                self.step(&write, present.as_ref(), &wished, Some(Verdict::Refused(why)));
                answer.into_response()
            }
            Some(Refusal::NoDryRun(why)) => self.guessed(&write, present, why),
            Some(Refusal::Other) => answer.into_response(),
        })
    }

    /// What is there now; none when it is not there, or may not be read.
    async fn present(&self, parts: &Parts) -> Result<Option<Value>, BoxError> {
        for question in [before(parts), read(parts)].into_iter().flatten() {
            let answer = self.ask(question).await?;
            if answer.is_success() {
                return Ok(Some(answer.body));
            }
        }
        Ok(None)
    }

    async fn ask(&self, (parts, body): (Parts, Vec<u8>)) -> Result<Answer, BoxError> {
        let request = Request::from_parts(parts, Body::from(body));
        Answer::of(self.inner.clone().oneshot(request).await.map_err(Into::into)?).await
    }

    /// The server would take the write: `answer` is what would be.
    fn planned(&self, write: &Write<'_>, present: Option<&Value>, answer: Answer) -> Response<Body> {
        match *write.method {
            Method::POST => {
                self.step(write, Some(&answer.body), &differences(&Value::Null, &write.body), None);
                answer.into_response()
            }
            Method::DELETE => {
                self.step(write, Some(&answer.body), &[], None);
                self.deleted(write, &answer);
                answer.into_response()
            }
            _ => {
                let after = &answer.body;
                let changes = match present {
                    Some(present) if version(present) == version(after) => differences(present, after),
                    present => write.wished(present.unwrap_or(&Value::Null)),
                };
                if !changes.is_empty() {
                    self.step(write, Some(after), &changes, None);
                }
                if !write.is_of_object() {
                    return answer.into_response();
                }
                let after = answer.body.clone();
                let by_now = if changes.is_empty() {
                    self.echoes.by_now(after)
                } else {
                    self.echoes.written(after, changes)
                };
                answer.with(&by_now)
            }
        }
    }

    /// Somebody whom the server asks cannot say without effect whether the write would be taken. The plan goes on as if it
    /// were, and says so.
    fn guessed(&self, write: &Write<'_>, present: Option<Value>, why: String) -> Response<Body> {
        let before = present.unwrap_or_default();
        let wished = write.wished(&before);
        self.step(write, Some(&before), &wished, Some(Verdict::Unknown(why)));
        match *write.method {
            Method::POST => Answer::json(201, write.body.clone()).into_response(),
            Method::DELETE => {
                Answer::json(200, json!({ "kind": "Status", "status": "Success" })).into_response()
            }
            _ if write.is_of_object() => {
                let after = merged(&before, &write.body);
                Answer::json(200, self.echoes.written(after, wished)).into_response()
            }
            _ => Answer::json(200, merged(&before, &write.body)).into_response(),
        }
    }

    fn deleted(&self, write: &Write<'_>, answer: &Answer) {
        if !write.is_of_object() {
            return;
        }
        if answer.body["kind"] == "Status" {
            self.echoes.gone(answer.body["details"]["uid"].as_str().unwrap_or_default());
            return;
        }
        // The answer is marked; what was there is the same without the mark.
        let mut present = answer.body.clone();
        if let Some(metadata) = present["metadata"].as_object_mut() {
            metadata.retain(|field, _| !field.starts_with("deletion"));
        }
        let marked = differences(&present, &answer.body);
        self.echoes.written(answer.body.clone(), marked);
    }

    fn step(
        &self,
        write: &Write<'_>,
        object: Option<&Value>,
        changes: &[Difference],
        verdict: Option<Verdict>,
    ) {
        let object = write.object(object.unwrap_or(&Value::Null));
        let secret = write.target.plural == "secrets";
        let with = changes.iter().map(|change| change.particular(secret)).collect();
        let step = Step { with, verdict, ..Step::new(KUBERNETES, write.what()) };
        self.plan.add_for(object, step);
    }

    /// The call cannot be made without effect.
    fn cannot(&self, method: &Method, path: &str) -> Response<Body> {
        self.plan.add(Step::new(KUBERNETES, "call").with("request", format_args!("{method} {path}")).last());
        let message = format!(
            "a dry run does not make this call, which no server makes without effect: {method} {path}"
        );
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 405, "reason": "MethodNotAllowed", "message": message });
        Answer::json(405, status).into_response()
    }
}

/// A write that is wanted.
struct Write<'a> {
    target: &'a Target,
    method: &'a Method,
    /// Null where it is not JSON.
    body: Value,
}

impl Write<'_> {
    fn what(&self) -> String {
        let verb = match *self.method {
            Method::POST => "create",
            Method::DELETE if self.target.name.is_none() => "delete all",
            Method::DELETE => "delete",
            _ => "write",
        };
        match self.target.subresource.as_deref() {
            None | Some("status") => verb.to_owned(),
            Some(subresource) => format!("{verb} {subresource}"),
        }
    }

    /// Whether it is the object itself, or its status, and not something beside it.
    fn is_of_object(&self) -> bool {
        self.target.name.is_some() && matches!(self.target.subresource.as_deref(), None | Some("status"))
    }

    /// What would change in `present` if the server did just as it is told.
    fn wished(&self, present: &Value) -> Vec<Difference> {
        match *self.method {
            Method::DELETE => Vec::new(),
            Method::PATCH => differences(present, &merged(present, &self.body)),
            _ => differences(present, &self.body),
        }
    }

    /// The object that is written, as far as `shown` tells more of it than the path.
    fn object(&self, shown: &Value) -> PlannedObject {
        let Target { namespace, plural, name, .. } = self.target;
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let shown = Some(shown).filter(|shown| shown["kind"] != "Status");
        let meta = |field: &str| {
            let shown = shown.and_then(|shown| text(&shown["metadata"][field]));
            shown.or_else(|| text(&self.body["metadata"][field]))
        };
        let own = self.is_of_object() || name.is_none();
        let kind = shown.and_then(|shown| text(&shown["kind"])).or_else(|| text(&self.body["kind"]));
        PlannedObject {
            kind: kind.filter(|_| own).unwrap_or_else(|| plural.clone()),
            namespace: namespace.clone(),
            name: name.clone().or_else(|| meta("name")).or_else(|| meta("generateName")).unwrap_or_default(),
            // What would be created has no UID yet: each answer invents another.
            uid: meta("uid").filter(|_| name.is_some() && own).unwrap_or_default(),
        }
    }
}

fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

#[cfg(test)]
mod tests;
