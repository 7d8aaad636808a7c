//! What a test can do to the embedded server, and what a client then sees.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Fault, Options, Requests};

async fn server_with(options: Options) -> (ApiServer, Client) {
    let server = ApiServer::start(options).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    (server, Client::try_from(config).unwrap())
}

async fn server() -> (ApiServer, Client) {
    server_with(Options::default()).await
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("{other:?} is no answer"),
    }
}

#[tokio::test]
async fn a_refusal_meets_the_requests_it_names_as_often_as_it_says() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let fault = Fault::Refuse { code: 503, retry_after: Some(7) };
    server.faults().inject(Requests::any().verb("create").resource("configmaps"), 2, fault);
    for _ in 0..2 {
        let Err(Error::Api(status)) = maps.create(&PostParams::default(), &config_map("a")).await else {
            panic!("the request was refused");
        };
        assert_eq!((status.code, status.reason.as_str()), (503, "ServiceUnavailable"));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);
    }
    maps.list(&ListParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert_eq!(server.faults().pending(), 0);
    let codes: Vec<_> =
        server.requests().iter().filter(|request| request.is_write()).map(|request| request.code).collect();
    assert_eq!(codes, [503, 503, 201]);
}

#[tokio::test]
async fn a_cut_request_is_done_or_not_as_the_fault_says() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for (name, fault, done) in [("before", Fault::Cut, false), ("after", Fault::CutAfter, true)] {
        server.faults().inject(Requests::any().verb("create"), 1, fault);
        let error = maps.create(&PostParams::default(), &config_map(name)).await.unwrap_err();
        assert!(!matches!(error, Error::Api(_)), "{name}: {error:?} is no answer of the server");
        assert_eq!(maps.get_opt(name).await.unwrap().is_some(), done, "{name}");
    }
}

#[tokio::test]
async fn a_request_can_hang_and_another_be_late() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    server.faults().inject(Requests::any().verb("get").name("a"), 1, Fault::Hang);
    let hung = tokio::time::timeout(Duration::from_millis(100), maps.get("a")).await;
    assert!(hung.is_err(), "no answer comes");
    server.faults().inject(Requests::any().verb("get"), 1, Fault::Delay(Duration::from_millis(50)));
    let start = std::time::Instant::now();
    assert_eq!(code(&maps.get("a").await.unwrap_err()), 404);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn an_outage_cuts_everybody_off_and_loses_nothing() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    watch.try_next().await.unwrap().expect("the config map was created");
    server.faults().begin_outage();
    assert!(maps.get("a").await.is_err());
    assert!(!matches!(watch.next().await, Some(Ok(_))), "the watch is cut");
    server.faults().end_outage();
    maps.get("a").await.unwrap();
}

#[tokio::test]
async fn watches_can_be_cut_and_resumed() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    server.faults().cut_watches();
    assert!(!matches!(watch.next().await, Some(Ok(_))), "the watch is cut");
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
}

#[tokio::test]
async fn events_that_left_the_log_are_gone_for_watches_and_pages() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let version = page.metadata.resource_version.clone().unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    server.faults().pause_watches();
    maps.create(&PostParams::default(), &config_map("c")).await.unwrap();
    server.trim_event_log();
    server.faults().resume_watches();
    let Some(WatchEvent::Error(status)) = watch.try_next().await.unwrap() else {
        panic!("the watch has missed something");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(watch.next().await.is_none(), "the error is the end");
    let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(code(&maps.list(&next).await.unwrap_err()), 410);
}

#[tokio::test]
async fn the_log_keeps_as_many_events_as_it_was_given() {
    let (_server, client) = server_with(Options { event_log: 3, ..Options::default() }).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    for _ in 0..3 {
        assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    }
    maps.create(&PostParams::default(), &config_map("d")).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410));
}

#[tokio::test]
async fn bookmarks_come_in_their_interval_and_tell_of_other_writes() {
    let interval = Duration::from_millis(20);
    let (_server, client) = server_with(Options { bookmark_interval: interval, ..Options::default() }).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut watch = pods.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let written = maps.get("a").await.unwrap().metadata.resource_version.unwrap();
    loop {
        let Some(WatchEvent::Bookmark(bookmark)) = watch.try_next().await.unwrap() else {
            panic!("nothing happens to pods");
        };
        if bookmark.metadata.resource_version == written {
            break;
        }
    }
}

#[tokio::test]
async fn the_audit_tells_reads_from_writes() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    maps.get("a").await.unwrap();
    let seen: Vec<_> = server
        .requests()
        .into_iter()
        .map(|request| {
            (request.verb.clone(), request.namespace.clone(), request.name.clone(), request.is_write())
        })
        .collect();
    let row = |verb: &str, name: &str, write| (verb.to_owned(), "default".to_owned(), name.to_owned(), write);
    assert_eq!(seen, [row("create", "", true), row("patch", "a", true), row("get", "a", false)]);
    server.clear_requests();
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_stopped_server_answers_nobody() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.list(&ListParams::default()).await.unwrap();
    server.stop().await;
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error:?}");
}
