use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::{DriverError, Reason};
use staffetta_openstack::{Cloud, OpenStackError, Secret};
use wiremock::ResponseTemplate;

use crate::world::{PASSWORD, World, ok, unauthorized};

async fn read(cloud: &Cloud) -> Result<Value, OpenStackError> {
    cloud.network().get("read a port", "ports/p1").json_member("port").await
}

const PORT: &str = "/v2.0/ports/p1";

fn port() -> ResponseTemplate {
    ok(&json!({ "port": { "id": "p1" } }))
}

#[tokio::test]
async fn a_password_is_sent_once_for_many_calls_and_the_token_with_each() {
    let world = World::new().await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud();
    let (one, other) = tokio::join!(read(&cloud), read(&cloud));
    assert_eq!((one.unwrap(), other.unwrap()), (json!({ "id": "p1" }), json!({ "id": "p1" })));
    read(&cloud.clone()).await.unwrap();
    let logins = world.requests("/v3/auth/tokens").await;
    let expected = json!({ "auth": {
        "identity": { "methods": ["password"], "password": { "user":
            { "name": "kuryr", "domain": { "id": "default" }, "password": PASSWORD } } },
        "scope": { "project": { "name": "k8s", "domain": { "id": "default" } } } } });
    assert_eq!(logins.iter().map(|asked| &asked.body).collect::<Vec<_>>(), [&expected]);
    let asked = world.requests(PORT).await;
    assert!(asked.iter().all(|asked| asked.token.as_deref() == Some("token-1")), "{asked:?}");
    assert!(asked[0].agent.starts_with("staffetta/"));
    let mut seen = world.seen.taken();
    seen.sort();
    let expected =
        ["identity POST success", "network GET success", "network GET success", "network GET success"];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn an_application_credential_asks_for_no_scope() {
    let world = World::new().await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud_with(|options| {
        (options.username, options.password, options.project_name) = (None, None, None);
        options.application_credential_id = Some("c1".into());
        options.application_credential_secret = Some(Secret::from("s"));
    });
    read(&cloud).await.unwrap();
    let login = world.requests("/v3/auth/tokens").await.remove(0).body;
    assert_eq!(login["auth"].get("scope"), None);
    assert_eq!(login["auth"]["identity"]["application_credential"], json!({ "id": "c1", "secret": "s" }));
}

#[tokio::test]
async fn without_a_login_no_token_is_sent() {
    let world = World::silent().await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud_with(|options| {
        options.auth_type = Some("none".into());
        options.endpoint_override = options.auth_url.take();
    });
    read(&cloud).await.unwrap();
    assert_eq!((world.logins().await, world.requests(PORT).await[0].token.clone()), (0, None));
}

#[tokio::test]
async fn a_revoked_token_is_renewed_once_for_all_and_the_calls_go_on() {
    let world = World::new().await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud();
    read(&cloud).await.unwrap();
    world.server.reset().await;
    world.keystone(3600).await;
    world.answers("GET", PORT, vec![unauthorized(), unauthorized(), port()]).await;
    let (one, other) = tokio::join!(read(&cloud), read(&cloud));
    one.unwrap();
    other.unwrap();
    assert_eq!(world.logins().await, 1);
}

#[tokio::test]
async fn tokens_that_no_service_accepts_are_not_asked_for_again_and_again() {
    let world = World::new().await;
    world.answers("GET", PORT, vec![unauthorized()]).await;
    let cloud = world.cloud();
    for _ in 0..5 {
        let error = read(&cloud).await.unwrap_err();
        assert_eq!((error.status(), error.reason()), (Some(401), Reason::Refused));
    }
    assert_eq!(world.logins().await, 2);
}

#[tokio::test]
async fn a_service_that_accepts_no_token_costs_no_login_a_call_while_another_one_accepts_them() {
    const BALANCER: &str = "/v2/lbaas/loadbalancers/l1";
    let world = World::silent().await;
    world.keystone_for(3600, &["network", "load-balancer"]).await;
    world.answers("GET", PORT, vec![port()]).await;
    world.answers("GET", BALANCER, vec![unauthorized()]).await;
    let cloud = world.cloud();
    for _ in 0..5 {
        read(&cloud).await.unwrap();
        let balancers = cloud.load_balancer();
        let error = balancers.get("read a load balancer", "loadbalancers/l1").done().await.unwrap_err();
        assert_eq!(error.status(), Some(401));
    }
    assert_eq!(world.logins().await, 2);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let world = World::silent().await;
    world.keystone(0).await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud();
    for number in 1..=2 {
        read(&cloud).await.unwrap();
        let last = world.requests(PORT).await.pop().unwrap();
        assert_eq!(last.token, Some(format!("token-{number}")));
    }
}

/// A cloud whose token of a minute has 20 s left.
async fn with_an_old_token() -> (World, Cloud) {
    let world = World::silent().await;
    world.keystone(60).await;
    world.answers("GET", PORT, vec![port()]).await;
    let cloud = world.cloud();
    read(&cloud).await.unwrap();
    pass(40).await;
    (world, cloud)
}

/// Time passes at once; what goes over the network takes as long as it does.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn no_call_waits_for_the_renewal_of_a_token_that_is_good() {
    let (world, cloud) = with_an_old_token().await;
    let renewed = async {
        loop {
            read(&cloud).await.unwrap();
            let asked = world.requests(PORT).await;
            match asked.last().unwrap().token.as_deref() {
                Some("token-1") => {}
                other => break (asked[1].token.clone(), other.map(str::to_owned)),
            }
        }
    };
    let tokens = tokio::time::timeout(Duration::from_secs(20), renewed).await.unwrap();
    assert_eq!(tokens, (Some("token-1".to_owned()), Some("token-2".to_owned())));
    assert_eq!(world.logins().await, 2);
}

#[tokio::test]
async fn a_keystone_that_hangs_stalls_no_call_while_the_token_is_good() {
    let (world, cloud) = with_an_old_token().await;
    world.server.reset().await;
    let hangs = ResponseTemplate::new(201).set_delay(Duration::from_secs(600));
    world.answers("POST", "/v3/auth/tokens", vec![hangs]).await;
    world.answers("GET", PORT, vec![port()]).await;
    let reads = async {
        for _ in 0..3 {
            let (one, other) = tokio::join!(read(&cloud), read(&cloud));
            one.and(other).unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reads).await.unwrap();
    assert!(world.logins().await <= 1, "one asks for all");
    let asked = world.requests(PORT).await;
    assert!(asked.iter().all(|asked| asked.token.as_deref() == Some("token-1")), "{asked:?}");
    // It is good no more: now they wait for Keystone, as long as for any service.
    pass(21).await;
    let waits = tokio::time::timeout(Duration::from_millis(500), read(&cloud)).await;
    assert!(waits.is_err(), "{waits:?}");
    assert_eq!(world.requests(PORT).await.len(), asked.len());
}

#[tokio::test]
async fn a_wrong_password_is_not_tried_with_every_call_and_never_reported() {
    let world = World::silent().await;
    world.answers("POST", "/v3/auth/tokens", vec![unauthorized()]).await;
    let cloud = world.cloud();
    for _ in 0..5 {
        let error = DriverError::from(read(&cloud).await.unwrap_err());
        let reported = error.to_string();
        assert_eq!(error.reason(), Reason::Refused);
        assert!(error.retry_after().is_some());
        let expected = "log in to Keystone: the request was rejected: HTTP 401: The request you have made requires \
            authentication. (request req-401)";
        assert_eq!(reported, expected);
        assert!(!reported.contains(PASSWORD) && !format!("{error:?} {cloud:?}").contains(PASSWORD));
    }
    assert_eq!(world.logins().await, 1);
}

#[tokio::test]
async fn a_password_in_a_file_is_read_at_each_login() {
    let world = World::silent().await;
    world.keystone(0).await;
    world.answers("GET", PORT, vec![port()]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let cloud = world.cloud_with(|options| {
        options.password = None;
        options.password_file = Some(file.clone());
    });
    for password in ["first", "second"] {
        std::fs::write(&file, format!("{password}\n")).unwrap();
        read(&cloud).await.unwrap();
        let login = world.requests("/v3/auth/tokens").await.pop().unwrap().body;
        assert_eq!(login["auth"]["identity"]["password"]["user"]["password"], password);
    }
}

#[tokio::test]
async fn an_unavailable_keystone_is_no_final_refusal() {
    let world = World::silent().await;
    let html = ResponseTemplate::new(503).set_body_string("<html><h1>Service Unavailable</h1></html>");
    world.answers("POST", "/v3/auth/tokens", vec![html]).await;
    let error = DriverError::from(read(&world.cloud()).await.unwrap_err());
    assert!(error.transient() && !error.ambiguous());
    assert!(error.to_string().contains("HTTP 503: Service Unavailable"), "{error}");
}

#[tokio::test]
async fn an_answer_of_keystone_that_is_none_is_reported() {
    let world = World::silent().await;
    world.answers("POST", "/v3/auth/tokens", vec![ok(&json!({ "hello": "world" }))]).await;
    let error = read(&world.cloud()).await.unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

#[tokio::test]
async fn a_service_that_the_cloud_has_not_is_named_with_those_that_it_has() {
    let world = World::new().await;
    let cloud = world.cloud_with(|options| options.region_name = Some("Two".into()));
    for (service, name) in [(cloud.network(), "network"), (cloud.load_balancer(), "load-balancer")] {
        let error = service.get("look around", "x").done().await.unwrap_err().to_string();
        let expected = format!(
            "look around: the external system is unavailable: the catalogue of the cloud has no `{name}` with the interface `public` in the region `Two`; \
             it has identity (public in One), network (public in One)"
        );
        assert_eq!(error, expected);
    }
    assert_eq!(world.logins().await, 1);
}
