//! The server under callers that disconnect, malformed requests, and its own end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use staffetta_driver::{DriverError, PodVifDriver, Reason};
use staffetta_memory::http::{Client, Fault, Method, ResourceKind, ServerOptions};

use crate::world::{PATIENCE, Remote, client, instant};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

/// Connects, and sends the beginning of a request.
fn send(remote: &Remote, bytes: &[u8]) -> TcpStream {
    let address = remote.server.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The status and the body that answer a request.
fn ask(remote: &Remote, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut answer = String::new();
    send(remote, request.as_bytes()).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The bytes of a call that requests a VIF.
async fn request_vif(remote: &Remote) -> Vec<u8> {
    let request = remote.drivers("east").vif_request("a").await;
    let body = serde_json::json!({ "cluster": "east", "arguments": [request] }).to_string();
    let length = body.len();
    format!("POST /v1/pod_vif/request_vif HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// Ends when the ledger has so many entries.
async fn until_made(client: &Client, number: usize) {
    let made = async { while client.effects().await.unwrap().entries().len() < number {} };
    tokio::time::timeout(PATIENCE, made).await.expect("all calls that came whole are done");
}

#[tokio::test]
async fn a_caller_that_goes_in_the_middle_of_a_call_leaves_all_of_it_or_nothing() {
    let remote = Remote::start(instant());
    let call = request_vif(&remote).await;
    // A request that never comes whole does nothing, at whatever byte its caller goes.
    for length in 0..call.len() {
        drop(send(&remote, &call[..length]));
    }
    // Those that come whole are done, although nobody waits for their answers.
    remote.client.inject(Method::RequestVif, 100, &Fault::DoneThenDelay(HOUR)).await.unwrap();
    let callers: Vec<_> = (0..100).map(|_| send(&remote, &call)).collect();
    until_made(&remote.client, 100).await;
    drop(callers);
    remote.client.check().await.unwrap();
    let ledger = remote.client.effects().await.unwrap();
    assert_eq!(ledger.entries().len(), 100);
    assert_eq!(ledger.existing(ResourceKind::Port).len(), remote.client.ports().await.unwrap().len());
    assert!(ledger.entries().iter().all(|entry| entry.request_id.is_none()), "these callers name none");
}

#[tokio::test]
async fn calls_that_hang_hold_up_no_others() {
    let remote = Remote::start(instant());
    let call = request_vif(&remote).await;
    remote.client.inject(Method::RequestVif, 50, &Fault::Hang).await.unwrap();
    let hanging: Vec<_> = (0..51).map(|_| send(&remote, &call)).collect();
    until_made(&remote.client, 1).await;
    assert_eq!(remote.client.ports().await.unwrap().len(), 1);
    drop(hanging);
    remote.client.check().await.unwrap();
}

#[tokio::test]
async fn what_is_no_call_is_refused_in_words() {
    let remote = Remote::start(instant());
    let good = r#"{"cluster":"east","arguments":[null]}"#;
    let list = "/v1/pod_vif/vifs";
    assert_eq!(ask(&remote, "POST", list, good), (200, "[]".into()));
    for (body, word) in [
        ("", "EOF"),
        (r#"{"cluster":"east"}"#, "missing field `arguments`"),
        (r#"{"cluster":"east","arguments":[null,1]}"#, "invalid length 2"),
    ] {
        let (status, answer) = ask(&remote, "POST", list, body);
        assert!(status == 400 && answer.contains(word), "{status} {answer}");
    }
    assert_eq!(ask(&remote, "POST", "/v1/pod_vif/steal_vif", good).0, 404);
    assert_eq!(ask(&remote, "GET", list, "").0, 405);
}

#[tokio::test]
async fn faults_are_planned_by_name_and_taken_back() {
    let remote = Remote::start(instant());
    let plan = |body: &str| ask(&remote, "POST", "/faults", body);
    let fail = r#"{"fail":{"reason":"quota","step":"list VIFs"}}"#;
    let once = format!(r#"{{"call":"pod_vif/vifs","times":1,"fault":{fail}}}"#);
    assert_eq!(plan(&once), (200, "null".into()));
    let driver = remote.client.driver("east".into());
    let error: DriverError = PodVifDriver::vifs(&driver, None).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Quota);
    PodVifDriver::vifs(&driver, None).await.unwrap();

    assert_eq!(plan(r#"{"call":"pod_vif/steal_vif","times":1,"fault":"hang"}"#).0, 400);

    remote.client.inject(Method::ListVifs, 100_000, &Fault::Hang).await.unwrap();
    remote.client.clear_faults().await.unwrap();
    PodVifDriver::vifs(&driver, None).await.unwrap();
}

#[tokio::test]
async fn a_server_that_ends_cuts_its_callers_and_says_nothing_more() {
    let remote = Remote::start(instant());
    let url = remote.server.url().to_owned();
    let call = request_vif(&remote).await;
    remote.client.inject(Method::RequestVif, 1, &Fault::Hang).await.unwrap();
    let mut hanging = send(&remote, &call);
    let Remote { server, client: before } = remote;
    drop(server);
    let gone = client(&url, 60_000).check().await.unwrap_err();
    assert!(gone.transient() && gone.to_string().contains("cannot connect to"), "{gone}");
    assert!(before.check().await.is_err());
    // An end or a reset, but no answer.
    let mut said = Vec::new();
    let _ = hanging.read_to_end(&mut said);
    assert_eq!(said, b"");
}

#[tokio::test]
async fn the_address_of_a_server_that_ended_is_free_at_once() {
    let mut options = ServerOptions::default();
    for _ in 0..50 {
        let remote = Remote::with(&options);
        remote.client.check().await.unwrap();
        options.listen = remote.server.url().strip_prefix("http://").unwrap().parse().unwrap();
    }
}
