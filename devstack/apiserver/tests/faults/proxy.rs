//! Properties of the proxy only: it passes credentials on, and its upstream can be replaced.

use std::net::{Ipv4Addr, SocketAddr};

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config, Error};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options, Proxy};

use crate::world::{World, client, code, yaml};

async fn server_at(listen: SocketAddr) -> ApiServer {
    ApiServer::start(Options { listen, ..Options::default() }).await.unwrap()
}

async fn server() -> ApiServer {
    server_at((Ipv4Addr::LOCALHOST, 0).into()).await
}

async fn accounts(kubeconfig: &str) -> Api<ServiceAccount> {
    Api::namespaced(client(yaml(kubeconfig)).await, "default")
}

fn account(name: &str) -> ServiceAccount {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn another_server_can_take_the_place_of_the_first() {
    let (first, second) = (server().await, server().await);
    let proxy = Proxy::start(yaml(&first.kubeconfig())).await.unwrap();
    let accounts = accounts(&proxy.kubeconfig()).await;
    accounts.create(&PostParams::default(), &account("a")).await.unwrap();
    let version = accounts.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let watch = accounts.watch(&kube::api::WatchParams::default(), &version).await.unwrap();
    let mut watch = std::pin::pin!(watch);
    proxy.set_upstream(yaml(&second.kubeconfig())).await.unwrap();
    let next = futures_util::StreamExt::next(&mut watch).await;
    assert!(!matches!(next, Some(Ok(_))), "its connection led to the first");
    assert!(accounts.get_opt("a").await.unwrap().is_none(), "the second never had it");
    assert_eq!(second.requests().len(), 1);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_cut_connection_until_it_is_back() {
    let upstream = server().await;
    let kubeconfig = upstream.kubeconfig();
    let at = upstream.url().trim_start_matches("http://").parse().unwrap();
    let proxy = Proxy::start(yaml(&kubeconfig)).await.unwrap();
    let accounts = accounts(&proxy.kubeconfig()).await;
    accounts.get("default").await.unwrap();
    upstream.stop().await;
    let error = accounts.get("default").await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error:?} is no answer");
    let _upstream = server_at(at).await;
    accounts.get("default").await.unwrap();
    let codes: Vec<_> = proxy.requests().iter().map(|request| request.code).collect();
    assert_eq!(codes, [200, 0, 200]);
}

#[tokio::test]
async fn a_stopped_proxy_answers_nobody() {
    let upstream = server().await;
    let proxy = Proxy::start(yaml(&upstream.kubeconfig())).await.unwrap();
    let accounts = accounts(&proxy.kubeconfig()).await;
    accounts.get("default").await.unwrap();
    proxy.stop().await;
    let error = accounts.get("default").await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error:?}");
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn who_brings_a_token_is_nobody_else_on_a_real_server() {
    let world = World::real().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    accounts.create(&PostParams::default(), &account("guest")).await.unwrap();
    let (options, wanted) = (PostParams::default(), TokenRequest::default());
    let token = accounts.create_token_request("guest", &options, &wanted).await.unwrap();
    let token = token.status.unwrap().token;
    for (token, refusal) in [(token, 403), ("no-such-token".into(), 401)] {
        let mut config = Config::new(world.url().parse().unwrap());
        config.auth_info.token = Some(token.into());
        config.default_retry = false;
        let guest: Api<ServiceAccount> = Api::namespaced(Client::try_from(config).unwrap(), &world.namespace);
        let error = guest.get("guest").await.unwrap_err();
        assert_eq!(code(&error), refusal, "{error}");
        let user = format!("system:serviceaccount:{}:guest", world.namespace);
        assert_eq!(error.to_string().contains(&user), refusal == 403, "{error}");
    }
    accounts.get("guest").await.expect("who brings none is the administrator");
    world.clean_up().await;
}
