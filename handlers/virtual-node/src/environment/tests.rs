//! Tests of environment variables, with an embedded API server.

use kube::api::PostParams;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_handler::causes;

use super::*;

impl Environments {
    /// Caches an empty environment.
    pub(crate) fn keep(&self, uid: &str) {
        let kept = Kept { form: 0, until: Instant::now() + CACHE_TIME, environment: Environment::new() };
        self.kept.insert(uid.to_owned(), kept);
    }

    /// Returns the number of cached environments.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }
}

async fn world() -> (ApiServer, Client) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
    let map = json!({ "metadata": { "name": "settings" }, "data": { "MODE": "fast", "LEVEL": "3" } });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let secret =
        json!({ "metadata": { "name": "login" }, "stringData": {}, "data": { "password": "aHVudGVyMg==" } });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    (server, client)
}

fn pod(container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("app");
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1", "labels": { "tier": "front" } },
        "spec": { "nodeName": "r1", "containers": [container] }
    }))
    .unwrap()
}

async fn environment(client: &Client, container: Value) -> Result<Vec<(String, String)>, EnvironmentError> {
    let made = Environments::new(client.clone(), vec!["default".to_owned()]).of(&pod(container)).await?;
    let variables = made["app"].iter();
    Ok(variables.map(|variable| (variable.name.clone(), variable.value.expose_secret().to_owned())).collect())
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn values_come_from_config_maps_secrets_fields_and_each_other() {
    let (_server, client) = world().await;
    let container = json!({
        "envFrom": [{ "prefix": "S_", "configMapRef": { "name": "settings" } },
            { "secretRef": { "name": "nobody", "optional": true } }],
        "env": [
            { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "login", "key": "password" } } },
            { "name": "MODE", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "MODE" } } },
            { "name": "MISSING_RETRY", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "x", "optional": true } } },
            { "name": "TIER", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['tier']" } } },
            { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            { "name": "URL", "value": "x://$(PASSWORD)@$(S_MODE)/$(LATER)" },
            { "name": "LATER", "value": "1" }
        ]
    });
    let expected = pairs(&[
        ("S_LEVEL", "3"),
        ("S_MODE", "fast"),
        ("PASSWORD", "hunter2"),
        ("MODE", "fast"),
        ("TIER", "front"),
        ("NODE", "r1"),
        ("URL", "x://hunter2@fast/$(LATER)"),
        ("LATER", "1"),
    ]);
    assert_eq!(environment(&client, container).await.unwrap(), expected);
}

#[tokio::test]
async fn what_does_not_exist_is_named_with_its_field_and_waited_for() {
    let (_server, client) = world().await;
    for (from, expected) in [
        (json!({ "secretKeyRef": { "name": "nobody", "key": "k" } }), "there is no Secret nobody"),
        (
            json!({ "secretKeyRef": { "name": "login", "key": "k" } }),
            "there is no key `k` in the Secret login",
        ),
        (json!({ "configMapKeyRef": { "name": "nobody", "key": "k" } }), "there is no ConfigMap nobody"),
    ] {
        let container = json!({ "env": [{ "name": "A", "valueFrom": from }] });
        let error = environment(&client, container).await.unwrap_err();
        assert_eq!(causes(&error), format!("spec.containers[0].env[0].valueFrom: {expected}"));
        assert_eq!((error.transient(), error.reason()), (true, "EnvironmentMissing"));
    }
}

#[tokio::test]
async fn secrets_of_a_namespace_that_is_not_listed_are_refused_and_not_read() {
    let (server, client) = world().await;
    server.clear_requests();
    for from in [
        json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "login", "key": "password" } } }] }),
        json!({ "envFrom": [{ "secretRef": { "name": "login", "optional": true } }] }),
    ] {
        let environments = Environments::new(client.clone(), vec!["other".to_owned()]);
        let error = environments.of(&pod(from)).await.unwrap_err();
        assert!(
            causes(&error).contains("pods of the namespace default may not use Secrets"),
            "{}",
            causes(&error)
        );
        assert_eq!((error.transient(), error.reason()), (false, "SecretForbidden"));
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn what_is_not_text_is_refused_with_its_field_and_never_left_out_without_a_word() {
    let (_server, client) = world().await;
    let secret = json!({ "metadata": { "name": "bytes" }, "data": { "key": "/w==", "text": "aQ==" } });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let map =
        json!({ "metadata": { "name": "mixed" }, "data": { "A": "1" }, "binaryData": { "key": "/w==" } });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    for (container, expected) in [
        (
            json!({ "envFrom": [{ "secretRef": { "name": "bytes", "optional": true } }] }),
            "spec.containers[0].envFrom[0]: the key `key` in the Secret bytes is not text",
        ),
        (
            json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "bytes", "key": "key", "optional": true } } }] }),
            "spec.containers[0].env[0].valueFrom: the key `key` in the Secret bytes is not text",
        ),
        (
            json!({ "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "mixed", "key": "key" } } }] }),
            "spec.containers[0].env[0].valueFrom: the key `key` in the ConfigMap mixed is not text",
        ),
    ] {
        let error = environment(&client, container).await.unwrap_err();
        assert_eq!((&*causes(&error), error.reason()), (expected, "FieldNotSupported"));
        assert!(error.transient(), "it goes on when there is text");
    }
    let all = json!({ "envFrom": [{ "configMapRef": { "name": "mixed" } }] });
    assert_eq!(environment(&client, all).await.unwrap(), pairs(&[("A", "1")]), "as on any node");
}

#[tokio::test]
async fn what_is_not_known_before_the_pod_runs_is_refused_with_its_field() {
    let (_server, client) = world().await;
    for (from, path) in [
        (
            json!({ "fieldRef": { "fieldPath": "status.podIP" } }),
            "spec.containers[0].env[0].valueFrom.fieldRef",
        ),
        (json!({ "resourceFieldRef": { "resource": "limits.cpu" } }), "spec.containers[0].env[0].valueFrom"),
    ] {
        let error =
            environment(&client, json!({ "env": [{ "name": "A", "valueFrom": from }] })).await.unwrap_err();
        assert!(causes(&error).starts_with(&format!("{path}: ")), "{error}");
        assert_eq!((error.transient(), error.reason()), (false, "FieldNotSupported"));
    }
}

#[tokio::test]
async fn the_steps_of_one_pod_read_each_object_once() {
    let (server, client) = world().await;
    let environments = Environments::new(client, vec!["default".to_owned()]);
    let from = json!({ "secretKeyRef": { "name": "login", "key": "password" } });
    let pod = pod(json!({ "env": [{ "name": "A", "valueFrom": from }, { "name": "B", "valueFrom": from }] }));
    server.clear_requests();
    for _ in 0..5 {
        environments.of(&pod).await.unwrap();
    }
    assert_eq!(server.requests().len(), 1);
}

/// Returns a text of this length.
fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn is_too_large(error: &EnvironmentError, path: &str) {
    assert!(causes(error).starts_with(&format!("{path}: ")), "{error}");
    assert!(matches!(error.problem, EnvironmentProblem::TooLarge(_)), "{error}");
    assert_eq!((error.transient(), error.reason()), (false, "FieldNotSupported"));
}

#[tokio::test]
async fn values_that_double_from_one_to_the_next_are_refused_before_they_fill_the_memory() {
    let (_server, client) = world().await;
    let doubled = |number: u32| json!({ "name": format!("V{}", number + 1), "value": format!("$(V{number})$(V{number})") });
    let variables: Vec<_> =
        [json!({ "name": "V0", "value": text(10) })].into_iter().chain((0..1000).map(doubled)).collect();
    let error = environment(&client, json!({ "env": variables })).await.unwrap_err();
    // 10 << 16 bytes, and all before it, are less than 1 MiB; twice as much is not.
    is_too_large(&error, "spec.containers[0].env[16]");
}

#[tokio::test]
async fn objects_that_are_put_in_again_and_again_are_refused_before_they_fill_the_memory() {
    let (_server, client) = world().await;
    let large =
        json!({ "metadata": { "name": "large" }, "data": { "key": text(200_000), "other": text(1000) } });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(large).unwrap()).await.unwrap();
    let from = |number| json!({ "prefix": format!("P{number}_"), "configMapRef": { "name": "large" } });
    let all = |times: u32| json!({ "envFrom": (0..times).map(from).collect::<Vec<_>>() });
    assert_eq!(environment(&client, all(5)).await.unwrap().len(), 10);
    is_too_large(&environment(&client, all(1000)).await.unwrap_err(), "spec.containers[0].envFrom[5]");
    let same: Vec<_> = (0..1000).map(|_| from(0)).collect();
    let error = environment(&client, json!({ "envFrom": same })).await.unwrap_err();
    is_too_large(&error, "spec.containers[0].envFrom[5]");
    let key = json!({ "configMapKeyRef": { "name": "large", "key": "key" } });
    let one = |number| json!({ "name": format!("V{number}"), "valueFrom": key });
    let error =
        environment(&client, json!({ "env": (0..1000).map(one).collect::<Vec<_>>() })).await.unwrap_err();
    is_too_large(&error, "spec.containers[0].env[5]");
    let mut pod = pod(all(5));
    let spec = pod.spec.as_mut().unwrap();
    spec.containers.push(Container { name: "second".into(), ..spec.containers[0].clone() });
    let error = Environments::new(client, vec!["default".to_owned()]).of(&pod).await.unwrap_err();
    is_too_large(&error, "spec.containers[1].envFrom[0]");
}

#[tokio::test]
async fn no_more_is_held_of_the_objects_that_a_pod_names_than_it_may_name() {
    let (_server, client) = world().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for number in 0..17 {
        let data = json!({ "metadata": { "name": format!("s{number}") }, "data": { "key": "1", "rest": text(1_000_000) } });
        maps.create(&PostParams::default(), &serde_json::from_value(data).unwrap()).await.unwrap();
    }
    let from = |number| {
        let key = json!({ "name": format!("s{number}"), "key": "key" });
        json!({ "name": format!("V{number}"), "valueFrom": { "configMapKeyRef": key } })
    };
    let first = |number: u32| json!({ "env": (0..number).map(from).collect::<Vec<_>>() });
    assert_eq!(environment(&client, first(16)).await.unwrap().len(), 16);
    is_too_large(&environment(&client, first(17)).await.unwrap_err(), "spec.containers[0].env[16].valueFrom");
}
