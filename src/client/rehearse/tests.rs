use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use proptest::prelude::*;
use staffetta_handler::ObjectPlan;

use super::*;

/// A server that has one pod, and never keeps what it is told.
struct Server {
    pod: Mutex<Value>,
    /// Answers that are given before anything else, and what the pod is after each.
    answers: Mutex<VecDeque<(u16, Value)>>,
    asked: Mutex<Vec<(Method, String, Vec<u8>)>>,
}

impl Server {
    fn new() -> Arc<Self> {
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "namespace": "shop", "name": "web", "uid": "u1",
            "resourceVersion": "7", "finalizers": ["their/own"], "annotations": { "theirs": "1" } }, "spec": { "containers": [] } });
        Arc::new(Self { pod: Mutex::new(pod), answers: Mutex::default(), asked: Mutex::default() })
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap().to_vec();
        let changes: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.to_string();
        self.asked.lock().unwrap().push((parts.method.clone(), path, body));
        if let Some((code, answer)) = self.answers.lock().unwrap().pop_front() {
            return Ok(Answer::json(code, answer).into_response());
        }
        let pod = self.pod.lock().unwrap().clone();
        Ok(match parts.method {
            Method::PATCH => Answer::json(200, merged(&pod, &changes)),
            Method::DELETE => {
                let mut marked = pod;
                marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                marked["metadata"]["deletionGracePeriodSeconds"] = json!(30);
                Answer::json(200, marked)
            }
            Method::POST => Answer::json(201, changes),
            _ => Answer::json(200, pod),
        }
        .into_response())
    }

    fn answers(&self, code: u16, answer: Value) {
        self.answers.lock().unwrap().push_back((code, answer));
    }

    fn paths(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.into_iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }
}

struct World {
    server: Arc<Server>,
    client: Client,
    plan: Plan,
    echoes: Arc<Echoes>,
}

impl World {
    fn new() -> Self {
        let (server, plan, echoes) = (Server::new(), Plan::default(), Arc::default());
        let asked = Arc::clone(&server);
        let client = Client::new(service_fn(move |request| Arc::clone(&asked).answer(request)), "shop");
        let client = rehearsed(client, &plan, &echoes);
        Self { server, client, plan, echoes }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn patch(&self, patch: Value) -> Result<Pod, kube::Error> {
        self.pods().patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await
    }

    /// The plan, a line a step.
    fn steps(&self) -> Vec<String> {
        let steps = self.plan.take().into_iter().flat_map(|(object, ObjectPlan { steps, .. })| {
            steps.into_iter().map(move |planned| {
                let step = planned.step;
                let with: Vec<_> =
                    step.with.iter().map(|with| serde_json::to_string(with).unwrap()).collect();
                let verdict = step.verdict.map(|verdict| format!(" {verdict:?}")).unwrap_or_default();
                format!("{object}: {} {}{verdict}", step.what, with.join(" "))
            })
        });
        steps.collect()
    }

    fn told(&self) -> Vec<Value> {
        let told = self.echoes.take().into_iter().map(|echo| match echo {
            Echo::Is(object) => object["metadata"].clone(),
            Echo::Gone(uid) => json!(uid),
        });
        told.collect()
    }
}

#[tokio::test]
async fn a_patch_is_asked_dry_planned_as_a_difference_and_told() {
    let world = World::new();
    let answered = world
        .patch(json!({ "metadata": { "annotations": { "k": "v" }, "finalizers": ["staffetta.dev/vif"] } }))
        .await
        .unwrap();
    assert_eq!(answered.metadata.resource_version.as_deref(), Some("7"), "nothing was written");
    let path = "PATCH /api/v1/namespaces/shop/pods/web?&dryRun=All".replace("?&", "?");
    assert_eq!(world.server.paths(), [path.clone(), path]);
    assert_eq!(
        world.steps(),
        [
            r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"} {"name":"finalizer staffetta.dev/vif","from":null,"to":true}"#
        ]
    );
    let told = world.told();
    assert_eq!(told[0]["annotations"], json!({ "k": "v", "theirs": "1" }));
    assert_eq!(told[0]["finalizers"], json!(["their/own", "staffetta.dev/vif"]));

    let second = world.patch(json!({ "metadata": { "annotations": { "l": "w" } } })).await.unwrap();
    assert_eq!(second.metadata.annotations.unwrap().len(), 3, "it stands on the first");
}

#[tokio::test]
async fn what_would_change_nothing_is_no_step_and_told_to_nobody() {
    let world = World::new();
    world
        .patch(json!({ "metadata": { "annotations": { "theirs": "1" }, "finalizers": ["their/own"] } }))
        .await
        .unwrap();
    assert_eq!((world.steps().len(), world.told().len()), (0, 0));
}

#[tokio::test]
async fn what_somebody_else_changes_between_two_questions_is_not_taken_for_ours() {
    let world = World::new();
    let mut earlier = world.server.pod.lock().unwrap().clone();
    earlier["metadata"]["annotations"]["k"] = json!("v");
    earlier["metadata"]["resourceVersion"] = json!("6");
    world.server.answers(200, earlier);
    world.server.pod.lock().unwrap()["metadata"]["annotations"]["theirs"] = json!("2");
    world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(world.steps(), [r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"}"#]);
    assert_eq!(world.told()[0]["annotations"], json!({ "k": "v", "theirs": "2" }));
}

#[tokio::test]
async fn an_object_that_never_stands_still_is_planned_as_it_was_wished() {
    let world = World::new();
    for version in 8..30 {
        let mut pod = world.server.pod.lock().unwrap().clone();
        pod["metadata"]["resourceVersion"] = json!(version.to_string());
        pod["metadata"]["annotations"]["theirs"] = json!(version.to_string());
        world.server.answers(200, pod);
    }
    world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(world.steps(), [r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"}"#]);
}

#[tokio::test]
async fn after_a_conflict_the_newer_state_is_told_as_a_watch_would() {
    let world = World::new();
    world
        .server
        .answers(409, json!({ "kind": "Status", "code": 409, "reason": "Conflict", "message": "changed" }));
    let error = world.patch(json!({ "metadata": { "resourceVersion": "1" } })).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
    assert_eq!(world.steps(), [""; 0]);
    assert_eq!(world.told()[0]["resourceVersion"], "7");
}

#[tokio::test]
async fn a_refusal_is_planned_with_its_reason_and_handed_on() {
    let world = World::new();
    let refusal = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not" });
    for _ in 0..3 {
        world.server.answers(403, refusal.clone());
    }
    let error = world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let expected = r#"pods shop/web: write {"name":"annotation k","from":null,"to":"v"} Refused("403 Forbidden you may not")"#;
    assert_eq!(world.steps(), [expected]);
    assert_eq!(world.told().len(), 0);
}

#[tokio::test]
async fn where_a_webhook_supports_no_dry_run_the_plan_goes_on_and_says_that_nobody_knows() {
    let world = World::new();
    let webhook = "admission webhook \"w\" does not support dry run";
    for _ in 0..2 {
        world.server.answers(
            400,
            json!({ "kind": "Status", "code": 400, "reason": "BadRequest", "message": webhook }),
        );
    }
    let answered = world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(answered.metadata.annotations.unwrap().len(), 2);
    let steps = world.steps();
    assert!(
        steps[0]
            .starts_with(r#"Pod shop/web: write {"name":"annotation k","from":null,"to":"v"} Unknown("400"#),
        "{steps:?}"
    );
    assert_eq!(world.told()[0]["annotations"], json!({ "k": "v", "theirs": "1" }));
    let read = world.server.paths().pop().unwrap();
    assert_eq!(read, "GET /api/v1/namespaces/shop/pods/web", "an empty patch is refused as well");
}

#[tokio::test]
async fn a_deletion_is_planned_and_told_as_far_as_it_would_go() {
    let world = World::new();
    world.pods().delete("web", &DeleteParams::default().grace_period(30)).await.unwrap();
    assert_eq!(world.told()[0]["deletionGracePeriodSeconds"], 30);
    world.patch(json!({ "metadata": { "annotations": { "k": "v" } } })).await.unwrap();
    assert_eq!(world.told()[0]["deletionGracePeriodSeconds"], 30, "what is told later knows of it");
    let gone = json!({ "kind": "Status", "status": "Success", "details": { "uid": "u1" } });
    world.server.answers(200, gone);
    world.pods().delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(world.told(), [json!("u1")]);
    assert_eq!(world.steps()[0], "Pod shop/web: delete ");
}

#[tokio::test]
async fn what_would_be_created_is_planned_and_told_to_nobody() {
    let world = World::new();
    let map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "data": { "x": "y" } })).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let expected = r#"ConfigMap shop/a: create {"name":"data.x","from":null,"to":"y"}"#;
    assert_eq!(world.steps(), [expected]);
    assert_eq!(world.told().len(), 0, "the server would not know it when it is written to");
}

#[tokio::test]
async fn what_reaches_through_the_server_is_not_sent_and_ends_the_plan_of_its_object() {
    let world = World::new();
    let object = PlannedObject { kind: "Pod".into(), name: "web".into(), ..PlannedObject::default() };
    let work = async {
        let request =
            Request::get("/api/v1/namespaces/shop/pods/web/exec?command=rm").body(Vec::new()).unwrap();
        let error = world.client.request_text(request).await.unwrap_err();
        world.plan.failed(&error.to_string());
    };
    world.plan.during("shell".into(), object.clone(), work).await;
    assert!(world.server.paths().is_empty());
    let planned = world.plan.take().remove(&object).unwrap();
    assert_eq!((planned.steps.len(), planned.steps[0].step.last, planned.failures.len()), (1, true, 0));
}

fn request() -> impl Strategy<Value = (String, String, Vec<u8>)> {
    let method = prop::sample::select(vec![
        "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW",
    ]);
    let step = prop::sample::select(vec![
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
    let path = prop::collection::vec(step, 0..9).prop_map(|steps| format!("/{}", steps.join("/")));
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
    fn whatever_is_sent_reads_or_says_that_it_is_a_dry_run((method, uri, body) in request()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asked = runtime.block_on(async {
            let world = World::new();
            let request = Request::builder().method(method.as_str()).uri(&uri).body(Body::from(body)).unwrap();
            world.client.send(request).await.unwrap();
            std::mem::take(&mut *world.server.asked.lock().unwrap())
        });
        for (method, path, body) in asked {
            let query = path.split_once('?').map_or("", |(_, query)| query);
            let said: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("dryRun=")).collect();
            let connects = path.split(['/', '?']).nth(6).is_some_and(|part| ["exec", "proxy"].contains(&part));
            let reads = ["GET", "HEAD", "OPTIONS"].contains(&method.as_str()) && !(path.contains("/namespaces/shop/pods/") && connects);
            let question = method == "POST" && path.starts_with("/apis/authorization.k8s.io/");
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let dry = said == ["All"] && (method != "DELETE" || body.is_null() || body["dryRun"] == json!(["All"]));
            prop_assert!(reads || question || dry, "{} {} {}", method, path, body);
        }
    }
}
