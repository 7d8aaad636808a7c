use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::{DriverError, Fence, Reason, RequestLog};
use staffetta_openstack::OpenStackError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wiremock::ResponseTemplate;

use crate::world::{PASSWORD, World, ok, refused, without_login};

#[tokio::test]
async fn a_list_is_read_to_its_end_from_the_host_that_has_the_token() {
    let world = World::new().await;
    let page = |ids: &[u8], next: &str| {
        ok(
            &json!({ "ports": ids, "ports_links": [{ "rel": "next", "href": format!("http://elsewhere:1/x?{next}") }] }),
        )
    };
    let last = ok(&json!({ "ports": [4] }));
    let pages = vec![page(&[1, 2], "marker=2&limit=2"), page(&[3], "limit=2&marker=3"), last];
    world.answers("GET", "/v2.0/ports", pages).await;
    let network = world.cloud().network();
    let ports: Vec<u8> =
        network.get("list the ports", "ports").query("tags", "a b").list("ports").await.unwrap();
    assert_eq!(ports, [1, 2, 3, 4]);
    let queries: Vec<_> = world.requests("/v2.0/ports").await.into_iter().map(|asked| asked.query).collect();
    let expected = ["tags=a+b&limit=1000", "tags=a+b&limit=1000&marker=2", "tags=a+b&limit=1000&marker=3"];
    assert_eq!(queries, expected);
}

#[tokio::test]
async fn a_list_whose_last_thing_is_deleted_between_two_pages_is_read_anew_and_not_for_ever() {
    let page =
        ok(&json!({ "ports": [1, 2], "ports_links": [{ "rel": "next", "href": "http://x/?marker=2" }] }));
    let (last, gone) = (ok(&json!({ "ports": [3] })), refused(404, "PortNotFound"));
    let world = World::new().await;
    world.answers("GET", "/v2.0/ports", vec![page.clone(), gone.clone(), page.clone(), last]).await;
    let network = world.cloud().network();
    let ports: Vec<u8> = network.get("list the ports", "ports").list("ports").await.unwrap();
    assert_eq!((ports, world.requests("/v2.0/ports").await.len()), (vec![1, 2, 3], 4));
    let world = World::new().await;
    let pages = std::iter::repeat_n([page, gone.clone()], 10).flatten().collect();
    world.answers("GET", "/v2.0/ports", pages).await;
    let network = world.cloud().network();
    let error = network.get("list the ports", "ports").list::<u8>("ports").await.unwrap_err();
    assert_eq!((error.reason(), world.requests("/v2.0/ports").await.len()), (Reason::Unavailable, 8));
    // What is not there at all is no list that changes.
    let world = World::new().await;
    world.answers("GET", "/v2.0/ports", vec![gone]).await;
    let network = world.cloud().network();
    let error = network.get("list the ports", "ports").list::<u8>("ports").await.unwrap_err();
    assert_eq!((error.reason(), world.requests("/v2.0/ports").await.len()), (Reason::NotFound, 1));
}

#[tokio::test]
async fn a_list_that_leads_back_to_itself_ends() {
    let world = World::new().await;
    let links = json!([{ "rel": "next", "href": "http://x/?marker=1" }]);
    world.answers("GET", "/v2.0/ports", vec![ok(&json!({ "ports": [1], "ports_links": links }))]).await;
    let network = world.cloud().network();
    let error = network.get("list the ports", "ports").list::<u8>("ports").await.unwrap_err();
    assert!(error.to_string().contains("links to itself"), "{error}");
}

#[tokio::test]
async fn a_refusal_becomes_what_a_handler_understands() {
    let cases = [
        (refused(409, "OverQuota"), Reason::Quota, false),
        (refused(409, "IpAddressGenerationFailure"), Reason::NoAddress, false),
        (refused(403, "PolicyNotAuthorized"), Reason::Refused, false),
        (refused(404, "NetworkNotFound"), Reason::NotFound, false),
        (refused(409, "NetworkInUse"), Reason::Conflict, false),
        (refused(412, "RevisionNumberConstraintFailed"), Reason::Conflict, false),
        (refused(500, "HTTPInternalServerError"), Reason::Unavailable, true),
    ];
    for (answer, reason, ambiguous) in cases {
        let world = World::new().await;
        world.answers("POST", "/v2.0/ports", vec![answer]).await;
        let error = world.cloud().network().post("make a port", "ports").json(&json!({})).done().await;
        let error = DriverError::from(error.unwrap_err());
        assert_eq!((error.reason(), error.ambiguous()), (reason, ambiguous), "{error}");
        assert!(
            error.to_string().starts_with("make a port: ") && error.to_string().contains("req-7"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_requests_of_an_attempt_are_logged_with_their_ids_and_without_their_queries() {
    let world = World::new().await;
    world.answers("GET", "/v2.0/ports", vec![ok(&json!({ "ports": [] }))]).await;
    world.answers("POST", "/v2.0/ports", vec![refused(409, "OverQuota")]).await;
    let (cloud, log) = (world.cloud(), Arc::<RequestLog>::default());
    let attempt = async {
        let network = cloud.network();
        let list = network.get("list the ports", "ports").query("name", PASSWORD);
        list.list::<u8>("ports").await.unwrap();
        network.post("make a port", "ports").done().await.unwrap_err();
    };
    log.collect(attempt).await;
    let requests = log.requests();
    let [.., list, post] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((&*list.method, &*list.path, list.status), ("GET", "/v2.0/ports", Some(200)));
    assert!(list.request_id.as_deref().is_some_and(|id| id.starts_with("req-")), "{list:?}");
    assert_eq!((&*post.method, &*post.path, post.status), ("POST", "/v2.0/ports", Some(409)));
    assert_eq!(post.request_id.as_deref(), Some("req-7"), "the id of the service replaces ours");
    assert!(!format!("{requests:?}").contains(PASSWORD));

    // A request without an answer has our id.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (cloud, log) = (without_login(&url, Duration::from_millis(100)), Arc::<RequestLog>::default());
    let network = cloud.network();
    log.collect(network.post("make a port", "ports").done()).await.unwrap_err();
    let requests = log.requests();
    assert_eq!((requests.len(), requests[0].status), (1, None));
    assert!(requests[0].request_id.is_some() && !log.changed_something());
}

#[tokio::test]
async fn a_service_that_wants_a_rest_is_given_one() {
    let busy = |status: u16| ResponseTemplate::new(status).insert_header("Retry-After", "7");
    for status in [413, 429, 503] {
        let world = World::new().await;
        world.answers("POST", "/v2.0/ports", vec![busy(status)]).await;
        let error = world.cloud().network().post("make a port", "ports").done().await.unwrap_err();
        let error = DriverError::from(error);
        assert_eq!(
            (error.reason(), error.retry_after()),
            (Reason::Unavailable, Some(Duration::from_secs(7)))
        );
        assert!(!error.ambiguous(), "who asks for a rest has done nothing: {status}");
    }
    let html = ResponseTemplate::new(503).set_body_string("<html><body>Keystone is away</body></html>");
    let world = World::new().await;
    world.answers("POST", "/v2.0/ports", vec![html.clone()]).await;
    world.answers("GET", "/v2.0/ports", vec![html]).await;
    let network = world.cloud().network();
    let made = network.post("make a port", "ports").done().await.unwrap_err();
    let read = network.get("list the ports", "ports").done().await.unwrap_err();
    assert!(made.ambiguous() && !read.ambiguous() && read.to_string().contains("Keystone is away"), "{read}");
}

#[tokio::test]
async fn a_wait_may_be_reported_as_a_date_and_is_never_long() {
    for (reported, least, most) in [("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0), ("86400", 300, 300)] {
        let world = World::new().await;
        let busy = ResponseTemplate::new(429).insert_header("Retry-After", reported);
        world.answers("GET", "/v2.0/x", vec![busy]).await;
        let error = world.cloud().network().get("look", "x").done().await.unwrap_err();
        let wait = error.retry_after().unwrap().as_secs();
        assert!((least..=most).contains(&wait), "{reported}: {wait}");
    }
}

#[tokio::test]
async fn a_change_may_be_made_to_one_revision_only() {
    let world = World::new().await;
    world.answers("PUT", "/v2.0/ports/p1", vec![ok(&json!({ "port": {} }))]).await;
    let call = world.cloud().network();
    call.put("change a port", "ports/p1")
        .json(&json!({ "port": {} }))
        .revision(Some(5))
        .done()
        .await
        .unwrap();
    let asked = world.requests("/v2.0/ports/p1").await;
    assert_eq!(asked[0].if_match.as_deref(), Some("revision_number=5"));
}

#[tokio::test]
async fn extensions_and_versions_are_asked_for_once() {
    let world = World::new().await;
    let extensions = json!({ "extensions": [{ "alias": "trunk", "name": "T" }, { "alias": "tag" }] });
    world.answers("GET", "/v2.0/extensions", vec![ok(&extensions)]).await;
    let versions = json!({ "versions": [{ "id": "v2.9", "status": "SUPPORTED" }, { "id": "v2.30" }] });
    world.answers("GET", "/", vec![ok(&versions)]).await;
    let network = world.cloud().network();
    assert!(network.has_extension("trunk").await.unwrap());
    assert!(!network.has_extension("qos").await.unwrap());
    for _ in 0..2 {
        assert_eq!(network.version().await.unwrap(), (2, 30));
    }
    let asked = [world.requests("/v2.0/extensions").await.len(), world.requests("/").await.len()];
    assert_eq!(asked, [1, 1]);
}

#[tokio::test]
async fn octavia_is_reached_below_its_own_path() {
    let world = World::new().await;
    world
        .answers("GET", "/v2/lbaas/loadbalancers/l1", vec![ok(&json!({ "loadbalancer": { "id": "l1" } }))])
        .await;
    let cloud = world.cloud_with(|options| {
        options.load_balancer_endpoint_override = options.auth_url.clone();
    });
    let service = cloud.load_balancer();
    let read = service.get("read a load balancer", "loadbalancers/l1");
    assert_eq!(read.json_member::<Value>("loadbalancer").await.unwrap(), json!({ "id": "l1" }));
}

#[tokio::test]
async fn an_answer_that_is_none_leaves_open_what_was_done() {
    let world = World::new().await;
    world.answers("POST", "/v2.0/ports", vec![ResponseTemplate::new(201).set_body_string("{}")]).await;
    let error = world.cloud().network().post("make a port", "ports").json_member::<Value>("port").await;
    let error = error.unwrap_err();
    assert!(error.ambiguous() && error.to_string().contains("a body that cannot be read"), "{error}");
}

#[tokio::test]
async fn each_request_has_a_name_that_the_service_and_the_error_tell() {
    let world = World::new().await;
    world.answers("GET", "/v2.0/x", vec![ResponseTemplate::new(502)]).await;
    let network = world.cloud().network();
    let mut names = Vec::new();
    for _ in 0..2 {
        let error = network.get("look", "x").done().await.unwrap_err().to_string();
        let name = error.split_once("(request ").unwrap().1.trim_end_matches(')').to_owned();
        names.push(name);
    }
    let sent = world.server.received_requests().await.unwrap();
    let sent = sent.iter().filter(|request| request.url.path() == "/v2.0/x");
    let sent: Vec<_> =
        sent.map(|request| request.headers["x-openstack-request-id"].to_str().unwrap()).collect();
    assert_eq!(sent, names);
    assert_ne!(names[0], names[1]);
    // As oslo.middleware takes it from callers.
    let parts: Vec<_> = names[0].split('-').map(str::len).collect();
    assert_eq!((parts, &names[0][..4]), (vec![3, 8, 4, 4, 4, 12], "req-"));
    assert!(
        names[0][4..]
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    );
}

#[tokio::test]
async fn what_the_catalogue_does_not_have_may_come_and_is_no_thing_that_does_not_exist() {
    let world = World::silent().await;
    world.keystone_for(3600, &["identity"]).await;
    let error = world.cloud().network().get("look", "ports/p1").done().await.unwrap_err();
    assert!(
        error.to_string().contains("the catalogue of the cloud has no") && !error.is_not_found(),
        "{error}"
    );
    assert_eq!(error.reason(), Reason::Unavailable);
}

/// A server that closes each connection after it has read a request, as often as said, and answers then.
async fn closing(times: usize) -> (String, tokio::task::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = 0;
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            assert!(connection.read(&mut buffer).await.unwrap() > 0);
            requests += 1;
            if requests > times {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                connection.write_all(answer).await.unwrap();
                return requests;
            }
        }
    });
    (url, task)
}

#[tokio::test]
async fn a_connection_that_closes_before_the_answer_is_tried_once_more_where_that_does_no_harm() {
    let (url, requests) = closing(1).await;
    let network = without_login(&url, Duration::from_secs(10)).network();
    network.get("look", "x").done().await.unwrap();
    assert_eq!(requests.await.unwrap(), 2);

    let (url, requests) = closing(1).await;
    let network = without_login(&url, Duration::from_secs(10)).network();
    let error = network.post("make a port", "ports").done().await.unwrap_err();
    assert!(error.ambiguous() && error.to_string().contains("closed the connection"), "{error}");
    network.post("once", "x").done().await.unwrap();
    assert_eq!(requests.await.unwrap(), 2);
}

#[tokio::test]
async fn a_service_that_is_not_there_has_done_nothing_and_one_that_hangs_perhaps_something() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let made = |url: &str| {
        let cloud = without_login(url, Duration::from_millis(200));
        async move { cloud.network().post("make a port", "ports").done().await.unwrap_err() }
    };
    let reported = |error: OpenStackError| (error.ambiguous(), error.reason(), error.to_string());
    let (ambiguous, reason, text) = reported(made(&url).await);
    assert!(ambiguous && reason == Reason::Unavailable && text.contains("within 200 ms"), "{text}");
    assert!(text.contains("(request req-"), "{text}");
    drop(listener);
    let (ambiguous, reason, text) = reported(made(&url).await);
    assert!(!ambiguous && reason == Reason::Unavailable && text.contains("cannot connect to"), "{text}");
    assert!(!text.contains("req-"), "nobody has heard of it: {text}");
}

#[tokio::test]
async fn a_service_that_is_asked_too_much_is_asked_less() {
    let later = ResponseTemplate::new(413).insert_header("Retry-After", "7");
    for busy in [ResponseTemplate::new(429), later] {
        let world = World::new().await;
        let slow = ok(&json!({})).set_delay(Duration::from_millis(100));
        world.answers("GET", "/v2.0/busy", vec![busy]).await;
        world.answers("GET", "/v2.0/slow", vec![slow]).await;
        let cloud = world.cloud_with(|options| options.max_concurrency = 2);
        cloud.network().get("look", "busy").done().await.unwrap_err();
        let began = std::time::Instant::now();
        let look = || async { cloud.network().get("look", "slow").done().await.unwrap() };
        tokio::join!(look(), look());
        assert!(began.elapsed() >= Duration::from_millis(200), "one after the other");
    }
}

#[tokio::test]
async fn nothing_reaches_the_services_after_the_leadership_has_ended() {
    let leads = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&leads);
    let fence = Fence::new(move || asked.load(Ordering::Relaxed));
    let world = World::new().await;
    world.answers("GET", "/v2.0/ports", vec![ok(&json!({ "ports": [1] }))]).await;
    let network = world.fenced_cloud(|_| {}, fence).network();
    let list = async || network.get("list the ports", "ports").list::<u8>("ports").await;
    assert_eq!(list().await.unwrap(), [1]);
    let before = world.server.received_requests().await.unwrap().len();
    leads.store(false, Ordering::Relaxed);
    let error = list().await.unwrap_err();
    assert!(error.to_string().contains("does not hold the leader lease"), "{error}");
    let port = json!({ "port": {} });
    let created = network.post("create a port", "ports").json(&port).done().await;
    assert_eq!(created.unwrap_err().reason(), Reason::Unavailable);
    network.delete("delete a port", "ports/p1").done().await.unwrap_err();
    assert_eq!(world.server.received_requests().await.unwrap().len(), before);
}
