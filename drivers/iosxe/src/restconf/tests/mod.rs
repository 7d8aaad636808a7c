//! Tests of requests to healthy and faulty devices.

mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use staffetta_driver::app_hosting::TlsSpec;
use tokio::net::TcpListener;
use wiremock::matchers::{
    basic_auth, body_json, header, method, path as at, query_param, query_param_is_missing,
};
use wiremock::{Mock, MockServer, ResponseTemplate};

use serde_json::Value;
use staffetta_driver::app_hosting::{DeviceSpec, Password};
use staffetta_driver::{DriverError, Fence, Reason};

use super::*;
use crate::model::operation::{DeviceOperation, in_envelope};
use crate::model::{APPS, resource};
use crate::options::IosXeOptions;

const STEP: &str = "ask";

fn client_at(address: &str, port: u16, tls: TlsSpec, timeout_ms: u64) -> Restconf {
    let spec = DeviceSpec {
        driver: "XE".into(),
        address: address.into(),
        port: Some(port),
        username: "admin".into(),
        password: Some(Password::new("hunter2")),
        tls,
        ..DeviceSpec::default()
    };
    let options =
        IosXeOptions { request_timeout_ms: timeout_ms.try_into().unwrap(), ..IosXeOptions::default() };
    Restconf::new(&spec, &options, Fence::default()).unwrap()
}

fn client(server: &MockServer) -> Restconf {
    client_at("127.0.0.1", server.address().port(), TlsSpec::off(), 60_000)
}

/// Starts a device with this `/.well-known/host-meta` document.
async fn server_of(document: &str) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .and(at("/.well-known/host-meta"))
        .and(header("accept", "application/xrd+xml"))
        .and(basic_auth("admin", "hunter2"))
        .respond_with(ResponseTemplate::new(200).set_body_raw(document, "text/plain"))
        .mount(&server)
        .await;
    server
}

/// Starts a device whose API root is `/api`.
async fn server() -> MockServer {
    server_of(
        "<XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'><Link rel='restconf' href='/api'/></XRD>",
    )
    .await
}

/// Sets the response for the configuration resource.
async fn answers(server: &MockServer, answer: ResponseTemplate) {
    Mock::given(method("GET"))
        .and(at(format!("/api/{}", resource::CONFIG.path)))
        .respond_with(answer)
        .mount(server)
        .await;
}

fn error_body(tag: &str) -> Value {
    json!({ "ietf-restconf:errors": { "error": [{ "error-type": "application", "error-tag": tag }] } })
}

async fn get(client: &Restconf) -> Result<Option<Vec<u8>>, DriverError> {
    client.get(resource::CONFIG, STEP).await.map_err(DriverError::from)
}

fn install() -> DeviceOperation {
    DeviceOperation::Install { appid: "a".into(), package: "flash:a.tar".into() }
}

#[tokio::test]
async fn the_api_is_where_the_device_says_and_requests_say_who_asks_and_in_which_form() {
    let server = server().await;
    Mock::given(method("GET"))
        .and(at(format!("/api/{}", resource::CONFIG.path)))
        .and(basic_auth("admin", "hunter2"))
        .and(header("accept", "application/yang-data+json"))
        .respond_with(ResponseTemplate::new(200).set_body_string("{}"))
        .expect(2)
        .mount(&server)
        .await;
    let client = client(&server);
    assert_eq!(get(&client).await.unwrap().as_deref(), Some(&b"{}"[..]));
    get(&client).await.unwrap();
    let asked = server.received_requests().await.unwrap();
    assert_eq!(asked.iter().filter(|request| request.url.path() == "/.well-known/host-meta").count(), 1);
}

#[tokio::test]
async fn the_requests_of_an_attempt_are_logged() {
    let server = server().await;
    answers(&server, ResponseTemplate::new(503)).await;
    let log = Arc::<staffetta_driver::RequestLog>::default();
    log.collect(get(&client(&server))).await.unwrap_err();
    let requests = log.requests().into_iter();
    let requests: Vec<_> = requests.map(|request| (request.method, request.path, request.status)).collect();
    let of = |path: String, status| ("GET".to_owned(), path, Some(status));
    let data = format!("/api/{}", resource::CONFIG.path);
    assert_eq!(requests, [of("/.well-known/host-meta".to_owned(), 200), of(data, 503)]);
}

#[tokio::test]
async fn a_device_without_the_document_has_the_api_at_the_usual_place() {
    let server = MockServer::start().await;
    Mock::given(at(format!("/restconf/{}", resource::CONFIG.path)))
        .respond_with(ResponseTemplate::new(204))
        .expect(1)
        .mount(&server)
        .await;
    assert_eq!(get(&client(&server)).await.unwrap(), None);
}

#[tokio::test]
async fn the_password_is_sent_nowhere_else() {
    let of = async |href: &str| server_of(&format!("<XRD><Link rel='restconf' href='{href}'/></XRD>")).await;
    for href in ["http://192.0.2.1/restconf", "//192.0.2.1/restconf", "https://127.0.0.1/restconf"] {
        let error = get(&client(&of(href).await)).await.unwrap_err();
        assert!(error.to_string().contains("has another scheme, host or port"), "{error}");
    }
    let elsewhere = MockServer::start().await;
    for path in [format!("/.//{}", elsewhere.address()), format!("/a/..//{}/api", elsewhere.address())] {
        let server = of(&path).await;
        assert_eq!(get(&client(&server)).await.unwrap_err().reason(), Reason::Unavailable);
        assert_eq!(server.received_requests().await.unwrap().len(), 2, "the device itself is asked");
    }
    let server = server().await;
    answers(&server, ResponseTemplate::new(307).insert_header("location", elsewhere.uri())).await;
    assert_eq!(get(&client(&server)).await.unwrap_err().reason(), Reason::Unavailable);
    assert!(elsewhere.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_to_a_read_is_quoted_by_its_status_alone() {
    const SECRET: &str = "hunter3";
    let problem =
        json!({ "errors": { "error": [{ "error-tag": "unknown-element", "error-message": SECRET }] } });
    for status in [400, 401, 403, 404, 500, 302] {
        for body in [SECRET.to_owned(), problem.to_string()] {
            let server = server().await;
            answers(&server, ResponseTemplate::new(status).set_body_string(body)).await;
            let reported = format!("{:?}", get(&client(&server)).await.unwrap_err());
            assert!(reported.contains(&format!("HTTP {status}")) && !reported.contains(SECRET), "{reported}");
        }
    }
    let link = server_of(&format!("<XRD><Link rel='restconf' href='http://{SECRET}/'/></XRD>")).await;
    let reported = format!("{:?}", get(&client(&link)).await.unwrap_err());
    assert!(!reported.contains(SECRET), "{reported}");
}

#[tokio::test]
async fn nothing_there_is_reported_in_three_ways_and_no_api_is_none_of_them() {
    for answer in [
        ResponseTemplate::new(204),
        ResponseTemplate::new(404).set_body_json(error_body("invalid-value")),
        ResponseTemplate::new(404).set_body_json(error_body("data-missing")),
    ] {
        let server = server().await;
        answers(&server, answer).await;
        assert_eq!(get(&client(&server)).await.unwrap(), None);
    }
    for answer in [
        ResponseTemplate::new(404),
        ResponseTemplate::new(404).set_body_string("<html>no such page</html>"),
        ResponseTemplate::new(404).set_body_json(error_body("unknown-element")),
    ] {
        let server = server().await;
        answers(&server, answer).await;
        let error = get(&client(&server)).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn a_device_that_tells_no_part_of_a_resource_is_asked_for_more_of_it() {
    let server = server().await;
    let at_oper = || Mock::given(method("GET")).and(at(format!("/api/{}", resource::STATES.path)));
    at_oper()
        .and(query_param("fields", "app(name;details/state;network-interfaces)"))
        .respond_with(ResponseTemplate::new(400).set_body_json(error_body("invalid-value")))
        .expect(1)
        .mount(&server)
        .await;
    let all = ResponseTemplate::new(200).set_body_string("{}");
    at_oper().and(query_param("fields", "app")).respond_with(all.clone()).expect(2).mount(&server).await;
    at_oper().and(query_param_is_missing("fields")).respond_with(all).expect(1).mount(&server).await;
    let client = client(&server);
    for resource in [resource::STATES, resource::STATES, resource::EVENTS] {
        assert!(client.get(resource, STEP).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_is_refused_of_a_part_and_of_the_whole_is_refused() {
    let server = server().await;
    Mock::given(at(format!("/api/{}", resource::STATES.path)))
        .respond_with(ResponseTemplate::new(400).set_body_json(error_body("invalid-value")))
        .expect(2)
        .mount(&server)
        .await;
    let fault = client(&server).get(resource::STATES, STEP).await.unwrap_err();
    assert_eq!(fault.error.reason(), Reason::Refused);
}

#[tokio::test]
async fn a_file_is_copied_and_deleted_with_a_time_of_its_own() {
    let server = server().await;
    let copy = DeviceOperation::Copy { from: "http://h/a".into(), to: "flash:/a".into() };
    let late = ResponseTemplate::new(204).set_delay(Duration::from_millis(2500));
    Mock::given(body_json(in_envelope(&copy.input())))
        .and(at("/api/operations/Cisco-IOS-XE-rpc:copy"))
        .respond_with(late)
        .expect(2)
        .mount(&server)
        .await;
    let words = json!({ "Cisco-IOS-XE-rpc:output": { "result": "%Error deleting flash:/a (No such file)" } });
    Mock::given(at("/api/operations/Cisco-IOS-XE-rpc:delete"))
        .respond_with(ResponseTemplate::new(200).set_body_json(words))
        .mount(&server)
        .await;
    let client = client_at("127.0.0.1", server.address().port(), TlsSpec::off(), 2000);
    client.operate(&copy, Some(Duration::from_secs(60))).await.unwrap();
    let fault = client.operate(&copy, Some(Duration::from_millis(100))).await.unwrap_err();
    assert!(fault.error.ambiguous(), "{:?}", fault.error);
    // That a copy takes long closes the way for nobody else.
    let delete = DeviceOperation::Delete { file: "flash:/a".into() };
    let fault = client.operate(&delete, None).await.unwrap_err();
    assert_eq!(fault.device_text.as_deref(), Some("HTTP 200: %Error deleting flash:/a (No such file)"));
}

#[tokio::test]
async fn a_wrong_password_is_sent_once_a_pause() {
    for status in [401, 403] {
        let server = MockServer::start().await;
        Mock::given(method("GET")).respond_with(ResponseTemplate::new(status)).expect(1).mount(&server).await;
        let client = client(&server);
        for _ in 0..5 {
            let error = get(&client).await.unwrap_err();
            assert_eq!(error.reason(), Reason::Refused);
            assert!(error.retry_after().is_some_and(|pause| pause > Duration::from_secs(20)));
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}

#[tokio::test]
async fn what_an_account_may_not_do_is_a_refusal_of_that_and_closes_the_way_for_nothing_else() {
    let server = server().await;
    answers(&server, ResponseTemplate::new(200).set_body_string("{}")).await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(403).set_body_json(error_body("access-denied")))
        .expect(3)
        .mount(&server)
        .await;
    let client = client(&server);
    assert!(client.last_answer().is_none());
    get(&client).await.unwrap();
    assert!(client.last_answer().is_some());
    let copy = DeviceOperation::Copy { from: "http://h/a".into(), to: "flash:/a".into() };
    for _ in 0..3 {
        let fault = client.operate(&copy, Some(Duration::from_secs(60))).await.unwrap_err();
        assert_eq!(fault.device_text.as_deref(), Some("HTTP 403 access-denied"));
        assert_eq!(fault.error.reason(), Reason::Refused);
        get(&client).await.unwrap();
    }
    // Another password is a matter of the log-in at any time.
    server.reset().await;
    answers(&server, ResponseTemplate::new(401)).await;
    assert!(get(&client).await.unwrap_err().retry_after().is_some());
}

#[tokio::test]
async fn a_refusal_is_distinguished_from_unavailability() {
    for (status, reason, ambiguous) in [
        (400, Reason::Refused, false),
        (405, Reason::Unsupported, false),
        (409, Reason::Conflict, false),
        (412, Reason::Refused, false),
        (415, Reason::Refused, false),
        (429, Reason::Unavailable, false),
        (500, Reason::Unavailable, true),
        (503, Reason::Unavailable, true),
    ] {
        let server = server().await;
        Mock::given(method("POST"))
            .and(at(format!("/api/{APPS}")))
            .respond_with(ResponseTemplate::new(status).set_body_json(error_body("some-tag")))
            .mount(&server)
            .await;
        let fault = client(&server).configure(&json!({})).await.unwrap_err();
        assert_eq!((fault.error.reason(), fault.error.ambiguous()), (reason, ambiguous), "{status}");
        assert_eq!(fault.device_text, Some(format!("HTTP {status} some-tag")));
    }
}

#[tokio::test]
async fn what_is_gone_is_removed() {
    for answer in [
        ResponseTemplate::new(204),
        ResponseTemplate::new(404).set_body_json(error_body("invalid-value")),
        ResponseTemplate::new(409).set_body_json(error_body("data-missing")),
    ] {
        let server = server().await;
        let place = format!("/api/{APPS}/app=a_b%20c");
        Mock::given(method("DELETE")).and(at(place)).respond_with(answer).expect(1).mount(&server).await;
        client(&server).remove("a_b c").await.unwrap();
    }
}

#[tokio::test]
async fn a_device_that_takes_no_envelope_gets_none_from_then_on() {
    let server = server().await;
    let place = format!("/api/{}", "operations/Cisco-IOS-XE-rpc:app-hosting");
    Mock::given(body_json(in_envelope(&install().input())))
        .and(at(place.clone()))
        .respond_with(ResponseTemplate::new(400).set_body_json(error_body("malformed-message")))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(body_json(install().input()))
        .and(at(place))
        .respond_with(ResponseTemplate::new(204))
        .expect(2)
        .mount(&server)
        .await;
    let client = client(&server);
    client.operate(&install(), None).await.unwrap();
    client.operate(&install(), None).await.unwrap();
}

#[tokio::test]
async fn what_never_left_was_not_done_and_a_change_that_is_not_answered_is_no_outage_and_a_read_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let closed = client_at("127.0.0.1", port, TlsSpec::off(), 60_000);
    let fault = closed.operate(&install(), None).await.unwrap_err();
    assert_eq!((fault.error.reason(), fault.error.ambiguous()), (Reason::Unavailable, false));

    let server = server().await;
    let late = ResponseTemplate::new(204).set_delay(Duration::from_secs(60));
    Mock::given(method("POST")).respond_with(late.clone()).mount(&server).await;
    answers(&server, late).await;
    let hasty = client_at("127.0.0.1", server.address().port(), TlsSpec::off(), 300);
    let fault = hasty.operate(&install(), None).await.unwrap_err();
    assert_eq!((fault.error.reason(), fault.error.ambiguous()), (Reason::Unavailable, true));
    assert!(fault.timed_out && hasty.gate.check().is_ok(), "others are still answered");
    let reading = Restconf { read_timeout: Duration::from_millis(300), ..client(&server) };
    assert!(!get(&reading).await.unwrap_err().ambiguous());
    assert!(reading.gate.check().is_err());
}

#[tokio::test]
async fn no_more_of_an_answer_is_read_than_it_may_have() {
    let server = server().await;
    answers(&server, ResponseTemplate::new(200).set_body_string("x".repeat(1001))).await;
    let small = Restconf { max_answer: 1000, ..client(&server) };
    let error = get(&small).await.unwrap_err();
    assert!(error.to_string().contains("the answer has more than 1000 bytes"), "{error}");
}

#[tokio::test]
async fn nothing_reaches_the_device_after_the_leadership_has_ended() {
    let server = server().await;
    answers(&server, ResponseTemplate::new(200).set_body_json(json!({}))).await;
    let leads = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&leads);
    let fence = Fence::new(move || asked.load(Ordering::Relaxed));
    let client = Restconf { fence, ..client(&server) };
    get(&client).await.unwrap();
    let before = server.received_requests().await.unwrap().len();
    leads.store(false, Ordering::Relaxed);
    let error = get(&client).await.unwrap_err();
    assert!(error.to_string().contains("does not hold the leader lease"), "{error}");
    client.configure(&json!({})).await.unwrap_err();
    client.remove("app").await.unwrap_err();
    assert_eq!(server.received_requests().await.unwrap().len(), before);
}
