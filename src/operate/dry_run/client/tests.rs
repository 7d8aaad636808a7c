use std::collections::VecDeque;
use std::convert::Infallible;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use proptest::prelude::*;

use super::*;
use crate::operate::dry_run::plan::ObjectPlan;

/// An API server with one pod. It stores nothing.
struct Server {
    pod: Mutex<Value>,
    /// Responses that are sent before all others.
    answers: Mutex<VecDeque<(u16, Value)>>,
    requests: Mutex<Vec<(Method, String, Vec<u8>)>>,
}

impl Server {
    fn new() -> Arc<Self> {
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "namespace": "shop", "name": "web", "uid": "u1",
            "resourceVersion": "7", "finalizers": ["their/own"], "annotations": { "theirs": "1" } }, "spec": { "containers": [] } });
        Arc::new(Self { pod: Mutex::new(pod), answers: Mutex::default(), requests: Mutex::default() })
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap().to_vec();
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.to_string();
        self.requests.lock().push((parts.method.clone(), path, body));
        let json = |code: u16, body: Value| response(code.try_into().unwrap(), &body);
        if let Some((code, answer)) = self.answers.lock().pop_front() {
            return Ok(json(code, answer));
        }
        let mut pod = self.pod.lock().clone();
        Ok(match parts.method {
            Method::PATCH => {
                for (key, value) in sent["metadata"]["annotations"].as_object().into_iter().flatten() {
                    pod["metadata"]["annotations"][key] = value.clone();
                }
                let finalizers = pod["metadata"]["finalizers"].as_array_mut().unwrap();
                let added = sent["metadata"]["finalizers"].as_array().into_iter().flatten();
                let added: Vec<_> = added.filter(|added| !finalizers.contains(added)).cloned().collect();
                finalizers.extend(added);
                json(200, pod)
            }
            Method::POST => json(201, sent),
            _ => json(200, pod),
        })
    }

    fn answers(&self, code: u16, answer: Value) {
        self.answers.lock().push_back((code, answer));
    }

    fn paths(&self) -> Vec<String> {
        let requests = std::mem::take(&mut *self.requests.lock());
        requests.into_iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }
}

struct World {
    server: Arc<Server>,
    client: Client,
    log: PlanLog,
    accepted: AcceptedWrites,
}

impl World {
    fn new() -> Self {
        let (server, log, accepted) = (Server::new(), PlanLog::default(), AcceptedWrites::default());
        let answering = Arc::clone(&server);
        let client = Client::new(service_fn(move |request| Arc::clone(&answering).answer(request)), "shop");
        let client = recording(client, &log, &accepted);
        Self { server, client, log, accepted }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn patch(&self, patch: Value) -> Result<Pod, kube::Error> {
        self.pods().patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await
    }

    /// Returns the steps of the plan, one on each line.
    fn steps(&self) -> Vec<String> {
        let steps = self.log.take().into_iter().flat_map(|(object, ObjectPlan { steps, .. })| {
            steps.into_iter().map(move |step| {
                let with: Vec<_> =
                    step.with.iter().map(|with| serde_json::to_string(with).unwrap()).collect();
                let refused = step.refused.map(|reason| format!(" refused: {reason}")).unwrap_or_default();
                let unknown = step.unknown.map(|reason| format!(" unknown: {reason}")).unwrap_or_default();
                format!("{object}: {} {}{refused}{unknown}", step.what, with.join(" "))
            })
        });
        steps.collect()
    }

    fn newer(&self) -> Vec<Value> {
        std::mem::take(&mut *self.accepted.lock()).values().map(|writes| combined(writes)).collect()
    }
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": message })
}

#[tokio::test]
async fn a_patch_is_sent_as_a_dry_run_and_recorded_with_its_changes() {
    let world = World::new();
    let patch = json!({ "metadata": { "annotations": { "k": "v" }, "finalizers": ["staffetta.dev/vif"] } });
    let answered = world.patch(patch).await.unwrap();
    assert_eq!(answered.metadata.resource_version.as_deref(), Some("7"), "nothing was written");
    let path = "PATCH /api/v1/namespaces/shop/pods/web?dryRun=All".to_owned();
    assert_eq!(world.server.paths(), [path.clone(), path]);
    let expected = r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"} {"name":"finalizer staffetta.dev/vif","from":null,"to":true}"#;
    assert_eq!(world.steps(), [expected]);
    let newer = world.newer();
    assert_eq!(newer[0]["metadata"]["annotations"], json!({ "k": "v", "theirs": "1" }));
    assert_eq!(newer[0]["metadata"]["finalizers"], json!(["their/own", "staffetta.dev/vif"]));
}

#[tokio::test]
async fn the_handlers_get_an_object_with_all_accepted_writes() {
    let world = World::new();
    for (key, finalizer) in [("a", "staffetta.dev/vif"), ("b", "staffetta.dev/policy")] {
        let patch = json!({ "metadata": { "annotations": { key: "1" }, "finalizers": [finalizer] } });
        world.patch(patch).await.unwrap();
    }
    world.server.answers(409, status(409, "Conflict", "changed"));
    world.patch(json!({ "metadata": { "resourceVersion": "1" } })).await.unwrap_err();
    let newer = world.newer();
    assert_eq!(newer[0]["metadata"]["annotations"], json!({ "a": "1", "b": "1", "theirs": "1" }));
    let finalizers = json!(["their/own", "staffetta.dev/vif", "staffetta.dev/policy"]);
    assert_eq!(newer[0]["metadata"]["finalizers"], finalizers);
}

#[tokio::test]
async fn accepted_writes_are_kept_when_another_program_changes_the_object() {
    let world = World::new();
    world.patch(json!({ "metadata": { "annotations": { "a": "1" } } })).await.unwrap();
    {
        let metadata = &mut world.server.pod.lock()["metadata"];
        metadata["resourceVersion"] = json!("8");
        metadata["annotations"]["theirs"] = json!("2");
    }
    world.server.answers(409, status(409, "Conflict", "changed"));
    world.patch(json!({ "metadata": { "resourceVersion": "7" } })).await.unwrap_err();
    let metadata = &world.newer()[0]["metadata"];
    assert_eq!(metadata["resourceVersion"], "8", "the next write is not a conflict");
    assert_eq!(metadata["annotations"], json!({ "a": "1", "theirs": "2" }));
}

#[tokio::test]
async fn a_write_without_effect_is_not_recorded() {
    let world = World::new();
    let patch = json!({ "metadata": { "annotations": { "theirs": "1" }, "finalizers": ["their/own"] } });
    world.patch(patch).await.unwrap();
    assert_eq!((world.steps().len(), world.newer().len()), (0, 0));
}

#[tokio::test]
async fn a_concurrent_change_by_another_writer_is_not_in_the_plan() {
    let world = World::new();
    let mut earlier = world.server.pod.lock().clone();
    earlier["metadata"]["annotations"]["k"] = json!("v");
    world.server.answers(200, earlier);
    world.server.pod.lock()["metadata"]["annotations"]["theirs"] = json!("2");
    world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(world.steps(), [r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"}"#]);
}

#[tokio::test]
async fn after_a_conflict_the_present_object_is_handled_next() {
    let world = World::new();
    world.server.answers(409, status(409, "Conflict", "changed"));
    let error = world.patch(json!({ "metadata": { "resourceVersion": "1" } })).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
    assert_eq!(world.steps(), [""; 0]);
    assert_eq!(world.newer()[0]["metadata"]["resourceVersion"], "7");
}

#[tokio::test]
async fn a_refusal_is_recorded_with_its_reason_and_returned() {
    let world = World::new();
    for _ in 0..3 {
        world.server.answers(403, status(403, "Forbidden", "you may not"));
    }
    let error = world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let expected = r#"pods shop/web: write {"name":"annotation k","from":null,"to":"v"} refused: 403 Forbidden you may not"#;
    assert_eq!(world.steps(), [expected]);
    assert_eq!(world.newer().len(), 0);
}

#[tokio::test]
async fn a_write_that_a_webhook_cannot_dry_run_is_recorded_as_unknown_and_succeeds() {
    let world = World::new();
    for _ in 0..2 {
        let message = "admission webhook \"w\" does not support dry run";
        world.server.answers(400, status(400, "BadRequest", message));
    }
    let answered = world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(answered.metadata.uid.as_deref(), Some("u1"));
    let steps = world.steps();
    let expected =
        r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"} unknown: 400 BadRequest"#;
    assert!(steps[0].starts_with(expected), "{steps:?}");
    let read = world.server.paths().pop().unwrap();
    assert_eq!(read, "GET /api/v1/namespaces/shop/pods/web", "an empty patch is refused as well");
}

#[tokio::test]
async fn a_deletion_and_a_creation_are_recorded() {
    let world = World::new();
    world.pods().delete("web", &DeleteParams::default().grace_period(30)).await.unwrap();
    let map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "data": { "x": "y" } })).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let expected =
        [r#"ConfigMap shop/a: create {"name":"data.x","from":null,"to":"y"}"#, "Pod shop/web: delete "];
    assert_eq!(world.steps(), expected);
    assert_eq!(world.newer().len(), 0, "only changed objects are handled again");
}

#[tokio::test]
async fn an_unsupported_call_is_not_sent_and_ends_the_plan_of_its_object() {
    let world = World::new();
    let object = PlannedObject { kind: "Pod".into(), name: "web".into(), ..PlannedObject::default() };
    let work = async {
        let request =
            Request::get("/api/v1/namespaces/shop/pods/web/exec?command=rm").body(Vec::new()).unwrap();
        Err(world.client.request_text(request).await.expect_err("it is not sent").into())
    };
    world.log.during("shell".into(), object.clone(), work).await;
    assert!(world.server.paths().is_empty());
    let planned = world.log.take().remove(&object).unwrap();
    assert_eq!((planned.steps.len(), planned.steps[0].last, planned.failures.len()), (1, true, 0));
}

#[test]
fn a_refusal_is_distinguished_from_a_server_that_cannot_answer() {
    let outcome = |code: u16, message: &str| {
        let mut answer = Response::new(json!({ "reason": "Reason", "message": message }));
        *answer.status_mut() = code.try_into().unwrap();
        DryRunOutcome::of(&answer)
    };
    assert_eq!(outcome(201, ""), DryRunOutcome::Accepted);
    assert_eq!(outcome(409, "changed"), DryRunOutcome::Conflict);
    for (code, message) in [(400, "bad"), (403, "may not"), (422, "invalid"), (413, "")] {
        let reason = format!("{code} Reason {message}").trim_end().to_owned();
        assert_eq!(outcome(code, message), DryRunOutcome::Refused(reason), "{code}");
    }
    for code in [401, 404, 408, 429, 500, 503] {
        assert_eq!(outcome(code, "later"), DryRunOutcome::Undecided, "{code}");
    }
    let webhook = "admission webhook \"w\" does not support dry run";
    assert_eq!(outcome(400, webhook), DryRunOutcome::NoDryRun(format!("400 Reason {webhook}")));
}

fn request() -> impl Strategy<Value = (String, String, Vec<u8>)> {
    let method = prop::sample::select(vec![
        "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW",
    ]);
    let segment = prop::sample::select(vec![
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "shop",
        "pods",
        "web",
        "status",
        "exec",
        "proxy",
        "binding",
        "finalize",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "healthz",
    ]);
    let real = prop::sample::select(vec![
        "/api/v1/namespaces/shop/pods",
        "/api/v1/namespaces/shop/pods/web",
        "/api/v1/namespaces/shop/pods/web/status",
        "/api/v1/namespaces/shop/pods/web/exec",
        "/api/v1/namespaces/shop/pods/web/proxy/x",
        "/api/v1/namespaces/shop/pods/web/binding",
        "/apis/apps/v1/namespaces/shop/deployments/web",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ]);
    let random = prop::collection::vec(segment, 0..9).prop_map(|segments| format!("/{}", segments.join("/")));
    let path = prop_oneof![2 => real.prop_map(str::to_owned), 1 => random];
    let query =
        prop::sample::select(vec!["", "?", "?dryRun=None", "?watch=true", "?force=true&dryRun=All&dryRun="]);
    let body = prop::sample::select(vec![
        "",
        "{}",
        "[]",
        "k8s\0",
        r#"{"dryRun":[]}"#,
        r#"{"gracePeriodSeconds":0}"#,
    ]);
    (method, path, query, body).prop_map(|(method, path, query, body)| {
        (method.to_owned(), format!("{path}{query}"), body.as_bytes().to_vec())
    })
}

proptest! {
    #[test]
    fn every_request_is_a_read_or_a_dry_run((method, uri, body) in request()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = runtime.block_on(async {
            let world = World::new();
            let request = Request::builder().method(method.as_str()).uri(&uri).body(Body::from(body)).unwrap();
            world.client.send(request).await.unwrap();
            std::mem::take(&mut *world.server.requests.lock())
        });
        for (method, path, body) in sent {
            let query = path.split_once('?').map_or("", |(_, query)| query);
            let options: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("dryRun=")).collect();
            let connects = path.split(['/', '?']).nth(7).is_some_and(|part| ["exec", "proxy"].contains(&part));
            let reads = ["GET", "HEAD", "OPTIONS"].contains(&method.as_str()) && !(path.contains("/namespaces/shop/pods/") && connects);
            let review = method == "POST" && path.starts_with("/apis/authorization.k8s.io/");
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let dry = options == ["All"] && (method != "DELETE" || body.is_null() || body["dryRun"] == json!(["All"]));
            prop_assert!(reads || review || dry, "{} {} {}", method, path, body);
        }
    }
}
