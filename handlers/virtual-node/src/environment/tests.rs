//! Environments from an embedded API server.

use kube::api::PostParams;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_handler::causes;

use super::*;

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
    let made = Environments::new(client.clone()).of(&pod(container)).await?;
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
            { "name": "ABSENT", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "x", "optional": true } } },
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
async fn what_is_not_text_is_refused_with_its_field_and_never_left_out_in_silence() {
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
    let environments = Environments::new(client);
    let from = json!({ "secretKeyRef": { "name": "login", "key": "password" } });
    let pod = pod(json!({ "env": [{ "name": "A", "valueFrom": from }, { "name": "B", "valueFrom": from }] }));
    server.clear_requests();
    for _ in 0..5 {
        environments.of(&pod).await.unwrap();
    }
    assert_eq!(server.requests().len(), 1);
}
