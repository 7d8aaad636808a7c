//! Properties of the embedded server only: the event log's size, bookmarks on demand, and shutdown.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Error};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};

use crate::world::{client, code, yaml};

async fn server_with(options: Options) -> (ApiServer, Client) {
    let server = ApiServer::start(options).await.unwrap();
    let client = client(yaml(&server.kubeconfig())).await;
    (server, client)
}

async fn server() -> (ApiServer, Client) {
    server_with(Options::default()).await
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
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
async fn a_stopped_server_answers_nobody() {
    let (server, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.list(&ListParams::default()).await.unwrap();
    server.stop().await;
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error:?}");
}
