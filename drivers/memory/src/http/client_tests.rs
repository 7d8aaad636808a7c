//! Tests of the errors of calls to a server that does not respond correctly.

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use staffetta_driver::{Owner, PodVifDriver, Reason, VifRequest};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;

fn client(url: String, timeout_ms: u64) -> Client {
    Client::new(&SimulatedOptions { url, timeout_ms }).unwrap()
}

fn request() -> VifRequest {
    VifRequest {
        owner: Owner { namespace: "default".into(), name: "web".into(), uid: "u1".into() },
        node_name: "n1".into(),
        host_ip: None,
        project: "p".into(),
        subnets: Vec::new(),
        security_groups: Vec::new(),
    }
}

/// Makes a call that changes the cloud and a call that only reads, and returns their errors. Panics if one of the calls succeeds, if an
/// error does not name its request, or if the error of the reading call is ambiguous.
async fn errors(client: &Client) -> [DriverError; 2] {
    let driver = client.driver("east".into());
    let changing = PodVifDriver::request_vif(&driver, &request()).await.unwrap_err();
    let reading = PodVifDriver::vifs(&driver, None).await.unwrap_err();
    assert!(!reading.ambiguous(), "{reading}");
    for error in [&changing, &reading] {
        assert!(error.to_string().contains(" (request "), "{error}");
    }
    [changing, reading]
}

/// Asserts that a call that changes the cloud and one that only reads fail with [`Reason::Unavailable`] and `detail`, and that only the
/// error of the former is ambiguous.
async fn assert_unknown(client: &Client, detail: &str) {
    let [changing, reading] = errors(client).await;
    assert!(changing.ambiguous(), "{changing}");
    for error in [changing, reading] {
        assert_eq!(error.reason(), Reason::Unavailable, "{error}");
        assert!(error.to_string().contains(detail), "{error}");
    }
}

/// Returns a client of a server that gives the same response to every request.
async fn answers<A: IntoResponse + Clone + Send + Sync + 'static>(answer: A) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(async move || answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    client(url, 60_000)
}

#[tokio::test]
async fn a_call_that_nobody_could_take_was_certainly_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = client(url.clone(), 60_000);
    for error in errors(&client).await {
        assert!(error.transient() && !error.ambiguous(), "{error}");
        assert!(error.to_string().contains(&format!("cannot connect to {url}")), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test]
async fn a_network_that_does_not_answer_in_time_may_have_done_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // It is never accepted: the system takes the request, and nobody reads it.
    let url = format!("http://{}", listener.local_addr().unwrap());
    assert_unknown(&client(url, 50), "no answer within 50 ms").await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_may_have_carried_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1]).await;
        }
    });
    assert_unknown(&client(url, 60_000), "the connection broke").await;
}

#[tokio::test]
async fn an_error_of_the_server_itself_may_come_after_the_work() {
    let client = answers((StatusCode::INTERNAL_SERVER_ERROR, "out of luck\n")).await;
    assert_unknown(&client, "HTTP 500: out of luck").await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_understood_may_come_after_the_work() {
    assert_unknown(&answers("<html>").await, "the response cannot be decoded").await;
    assert_unknown(&answers("[{}]").await, "the response cannot be decoded").await;
}

#[tokio::test]
async fn no_more_of_an_answer_is_read_than_it_may_have() {
    let client = Client { max_response: 1000, ..answers("x".repeat(1001)).await };
    assert_unknown(&client, "the answer has more than 1000 bytes").await;
    let client = Client { max_response: 1001, ..client };
    assert_unknown(&client, "the response cannot be decoded").await;
}

#[tokio::test]
async fn what_was_not_understood_was_not_done_and_is_not_repeated() {
    for (status, body) in [(404, "no such thing".to_owned()), (422, "no".to_owned()), (413, "z".repeat(5000))]
    {
        let client = answers((StatusCode::from_u16(status).unwrap(), body.clone())).await;
        for error in errors(&client).await {
            let shown = error.to_string();
            assert_eq!((error.reason(), error.ambiguous()), (Reason::Refused, false), "{shown}");
            let quoted: String = body.chars().take(200).collect();
            assert!(shown.contains(&format!("HTTP {status}: {quoted} (request ")), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let elsewhere = [("location", "http://127.0.0.1:1/")];
    let client = answers((StatusCode::TEMPORARY_REDIRECT, elsewhere)).await;
    assert_unknown(&client, "HTTP 307").await;
}

#[test]
fn request_ids_are_unique() {
    let [one, other] = ["http://a", "http://a"].map(|url| client(url.into(), 1));
    let (first, second) = (one.next_request_id(), one.clone().next_request_id());
    assert!(first.ends_with("-1") && second.ends_with("-2"), "{first} {second}");
    assert_ne!(first, other.next_request_id());
}
