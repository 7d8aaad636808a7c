//! The forms and the faults of a base over HTTP, as its client sees them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use serde_json::{Value, json};
use staffetta_koupleless_base::{AnswerFault, BaseCommand, SimulatedBase, SimulatedBaseOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn cart() -> Value {
    json!({ "bizName": "cart", "bizVersion": "1", "bizUrl": "https://example.com/cart.jar" })
}

/// Sends a command and returns all that the base sends until it closes the connection.
async fn send(base: &SimulatedBase, method: &str, command: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(base.address().unwrap()).await.unwrap();
    let head =
        format!("{method} /{command} HTTP/1.1\r\nHost: base\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The base may reset the connection.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// Posts a command and returns the JSON of the response.
async fn post(base: &SimulatedBase, command: &str, body: &Value) -> Value {
    let answer = send(base, "POST", command, &body.to_string()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn start() -> SimulatedBase {
    SimulatedBase::http(SimulatedBaseOptions::default(), &[]).await.unwrap()
}

#[tokio::test]
async fn the_commands_have_the_forms_of_arklet() {
    let base = start().await;
    let health = post(&base, "health", &json!({})).await;
    assert_eq!((&health["code"], &health["baseIdentity"]), (&json!("SUCCESS"), &json!("base-1")));
    assert!(health["data"]["healthData"]["jvm"]["java max metaspace"].is_u64(), "{health}");
    assert_eq!(health["data"]["healthData"]["masterBizInfo"]["bizState"], "ACTIVATED");

    let installed = post(&base, "installBiz", &cart()).await;
    assert_eq!((&installed["code"], &installed["data"]["code"]), (&json!("SUCCESS"), &json!("SUCCESS")));
    let again = post(&base, "installBiz", &cart()).await;
    assert_eq!((&again["code"], &again["data"]["code"]), (&json!("FAILED"), &json!("REPEAT_BIZ")));
    let all = post(&base, "queryAllBiz", &json!({})).await;
    let module = &all["data"][0];
    assert_eq!(
        (&module["bizName"], &module["bizVersion"], &module["bizState"]),
        (&json!("cart"), &json!("1"), &json!("activated"))
    );
    assert!(module["bizStateRecords"][0]["changeTime"].is_i64(), "{module}");
    assert_eq!(post(&base, "uninstallBiz", &cart()).await["code"], "SUCCESS");
    assert_eq!(post(&base, "uninstallBiz", &cart()).await["data"]["code"], "NOT_FOUND_BIZ");

    assert_eq!(post(&base, "format", &json!({})).await["code"], "CMD_NOT_FOUND");
    assert_eq!(post(&base, "installBiz", &json!({})).await["code"], "CMD_PROCESS_INTERNAL_ERROR");
    assert!(send(&base, "GET", "health", "").await.starts_with("HTTP/1.1 500 "));
}

#[tokio::test]
async fn each_request_to_load_or_unload_a_module_is_recorded_whatever_came_of_it() {
    let base = start().await;
    post(&base, "installBiz", &cart()).await;
    post(&base, "installBiz", &cart()).await;
    post(&base, "uninstallBiz", &cart()).await;
    let operations: Vec<_> = base.operations().into_iter().map(|one| (one.command, one.module)).collect();
    let (install, uninstall) = (BaseCommand::InstallBiz, BaseCommand::UninstallBiz);
    let cart = || "cart:1".to_owned();
    assert_eq!(operations, [(install, cart()), (install, cart()), (uninstall, cart())]);
    assert_eq!((base.received(install), base.received(BaseCommand::Health)), (2, 0));
}

#[tokio::test]
async fn a_lost_answer_leaves_its_effect_and_a_fixed_one_has_none() {
    let base = start().await;
    base.behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::InstallBiz, AnswerFault::Lose)));
    assert_eq!(send(&base, "POST", "installBiz", &cart().to_string()).await, "");
    assert_eq!(base.modules().len(), 1);
    let fixed = AnswerFault::Fixed { status: 502, body: b"bad gateway".to_vec() };
    base.behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::UninstallBiz, fixed)));
    let answer = send(&base, "POST", "uninstallBiz", &cart().to_string()).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.ends_with("bad gateway"), "{answer}");
    assert_eq!((base.modules().len(), base.received(BaseCommand::UninstallBiz)), (1, 1));
}

#[tokio::test]
async fn bad_answers_are_malformed_oversized_or_of_another_base() {
    let base = start().await;
    let answer_with =
        |fault| base.behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::Health, fault)));
    answer_with(AnswerFault::Malformed);
    let answer = send(&base, "POST", "health", "{}").await;
    assert!(serde_json::from_str::<Value>(answer.split_once("\r\n\r\n").unwrap().1).is_err(), "{answer}");
    answer_with(AnswerFault::Oversized);
    assert!(send(&base, "POST", "health", "{}").await.len() > 2 << 20);
    base.behave(|behaviour| {
        behaviour.answer_all();
        behaviour.claims = Some("base-2".into());
    });
    assert_eq!(post(&base, "health", &json!({})).await["baseIdentity"], "base-2");
    assert_eq!(base.heartbeat()["baseMetadata"]["identity"], "base-2");
}

#[tokio::test]
async fn a_command_that_is_held_is_executed_once_also_if_its_client_has_gone() {
    let base = start().await;
    base.behave(staffetta_koupleless_base::Behaviour::hold_all);
    let body = cart().to_string();
    let asking = send(&base, "POST", "installBiz", &body);
    let gone = tokio::time::timeout(Duration::from_millis(50), asking).await;
    assert!(gone.is_err() && base.modules().is_empty() && base.operations().len() == 1);
    base.behave(staffetta_koupleless_base::Behaviour::answer_all);
    while base.modules().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(post(&base, "queryAllBiz", &json!({})).await["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_restart_loses_the_modules_and_breaks_what_is_under_way() {
    let options =
        SimulatedBaseOptions { install_time: Duration::from_secs(3600), ..SimulatedBaseOptions::default() };
    let base = SimulatedBase::http(options, &[]).await.unwrap();
    let body = cart().to_string();
    let asking = send(&base, "POST", "installBiz", &body);
    let restarting = async {
        while base.modules().is_empty() {
            tokio::task::yield_now().await;
        }
        base.restart();
    };
    let (answer, ()) = tokio::join!(asking, restarting);
    assert_eq!((answer.as_str(), base.modules().len()), ("", 0));
    assert_eq!(post(&base, "health", &json!({})).await["code"], "SUCCESS");
}

#[tokio::test]
async fn a_base_that_cannot_be_reached_closes_connections_until_it_can() {
    let base = start().await;
    base.behave(|behaviour| behaviour.reachable = false);
    assert_eq!(send(&base, "POST", "health", "{}").await, "");
    base.behave(|behaviour| behaviour.reachable = true);
    assert_eq!(post(&base, "health", &json!({})).await["code"], "SUCCESS");
}

/// Accepts a report, answers it, and returns its path, its body and the address from which it came.
async fn accept(listener: &TcpListener, answer: &str) -> (String, Value, String) {
    let (mut stream, peer) = listener.accept().await.unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while text.split_once("\r\n\r\n").is_none_or(|(_, body)| serde_json::from_str::<Value>(body).is_err()) {
        let count = stream.read(&mut buffer).await.unwrap();
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    let response =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}", answer.len());
    stream.write_all(response.as_bytes()).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    (path, serde_json::from_str(body).unwrap(), peer.ip().to_string())
}

#[tokio::test]
async fn a_base_asks_for_its_baseline_and_then_reports_to_the_replicas_one_by_one() {
    let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let controllers = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let heartbeat = Duration::from_millis(20);
    let options = SimulatedBaseOptions {
        heartbeat,
        first_heartbeat: Duration::ZERO,
        asks_baseline: true,
        ..SimulatedBaseOptions::numbered(7, 10)
    };
    let base = SimulatedBase::http(options, &controllers).await.unwrap();
    let (path, metadata, from) = accept(&first, &json!([cart()]).to_string()).await;
    assert_eq!(
        (path.as_str(), &metadata["identity"], from.as_str()),
        ("/queryBaseline", &json!("base-7"), "127.88.0.7")
    );
    let (path, status, _) = accept(&second, "SUCCESS").await;
    assert_eq!((path.as_str(), &status["state"]), ("/heartbeat", &json!("ACTIVATED")));
    assert_eq!(status["port"], json!(base.address().unwrap().port()));
    assert_eq!(status["localIP"], "127.88.0.7");
    assert_eq!((base.modules().len(), base.baselines()), (1, vec![Ok(vec![cart()])]));

    base.behave(|behaviour| behaviour.flaps = true);
    drop(first);
    let mut states = Vec::new();
    for _ in 0..4 {
        states.push(accept(&second, "SUCCESS").await.1["state"].as_str().unwrap().to_owned());
    }
    assert!(states.windows(2).all(|two| two[0] != two[1]), "{states:?}");
}
