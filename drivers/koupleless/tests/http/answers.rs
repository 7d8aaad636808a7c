//! Bad answers of a base.

use serde_json::{Value, json};
use staffetta_driver::tunnel::OperationResponseResult::{Fail, Unknown};
use staffetta_driver::tunnel::{Tunnel, TunnelEvent};
use staffetta_driver::{DriverError, Reason};
use staffetta_koupleless_base::{BaseCommand, Behaviour};

use crate::world::{World, answers, impatient, options};

/// Checks that bad answers to both queries are errors whose text contains `expected`, and that no state is reported.
async fn is_an_error(world: &mut World, heartbeat: &Value, expected: &str) -> DriverError {
    let id = "base-1".parse().unwrap();
    let health = world.tunnel.fetch_health_data(&id).await.unwrap_err();
    let modules = world.tunnel.query_all_container_status_data(&id).await.unwrap_err();
    for error in [&health, &modules] {
        assert!(error.to_string().contains(expected), "{expected} in {error}");
    }
    world.post("heartbeat", heartbeat).await;
    let (_, event) = world.receiver.recv().await.unwrap();
    assert!(matches!(event, TunnelEvent::NodeDiscovered(_)), "{event:?}");
    modules
}

#[tokio::test]
async fn a_bad_answer_to_a_query_is_an_error_and_never_an_empty_state() {
    let (mut world, base, _) = World::with_base(options()).await;
    let large = json!({ "code": "SUCCESS", "data": [], "message": "x".repeat(2 << 20) }).to_string();
    for (status, body, expected) in [
        (200, String::new(), "malformed at line 1"),
        (200, "{\"code\":\"SUCCESS\",\"data\":[{\"bizName\":".to_owned(), "malformed"),
        (200, "[]".to_owned(), "malformed"),
        (200, json!({ "code": "SUCCESS", "data": 7 }).to_string(), "malformed"),
        (200, json!({ "code": "SUCCESS" }).to_string(), "no data"),
        (200, json!({ "code": "FAILED", "message": "busy", "data": null }).to_string(), "\"FAILED\": busy"),
        (200, large, "more than 1048576 bytes"),
        (502, String::new(), "HTTP 502"),
        (302, String::new(), "HTTP 302"),
    ] {
        for command in [BaseCommand::Health, BaseCommand::QueryAllBiz] {
            answers(&base, command, status, &body);
        }
        is_an_error(&mut world, &base.heartbeat(), expected).await;
    }
}

#[tokio::test]
async fn a_base_that_never_answers_is_an_error() {
    let (mut world, base, _) = World::with_base(impatient()).await;
    base.behave(Behaviour::hold_all);
    is_an_error(&mut world, &base.heartbeat(), "no answer").await;
}

#[tokio::test]
async fn a_base_at_the_address_of_another_does_not_answer_for_it() {
    let (mut world, base, id) = World::with_base(options()).await;
    let heartbeat = base.heartbeat();
    base.behave(|behaviour| behaviour.claims = Some("base-2".to_owned()));
    let error = is_an_error(&mut world, &heartbeat, "base \"base-2\" answers at its address").await;
    assert_eq!(error.reason(), Reason::Conflict);
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert!(answer.result == Unknown && answer.message.contains("base-2"), "{answer:?}");
}

#[tokio::test]
async fn a_bad_answer_to_an_install_is_a_failure_that_says_what_may_have_happened() {
    let (mut world, base, id) = World::with_base(options()).await;
    let trace = json!({ "code": "FAILED", "message": "no\nroom", "errorStackTrace": "at secret.Place", "data": null });
    for (status, body, expected, ambiguous) in [
        (200, "{".to_owned(), "malformed", true),
        (500, "at secret.Place".to_owned(), "HTTP 500", true),
        (200, "x".repeat(2 << 20), "more than", true),
        (200, trace.to_string(), "no room", false),
    ] {
        answers(&base, BaseCommand::InstallBiz, status, &body);
        world.install(&id).await.unwrap();
        let (_, answer) = world.answer().await;
        assert_eq!(answer.result, if ambiguous { Unknown } else { Fail }, "{answer:?}");
        assert!(answer.message.contains(expected), "{answer:?}");
        assert_eq!(answer.message.contains("may have taken effect"), ambiguous, "{answer:?}");
        assert!(!answer.message.contains("secret"), "{answer:?}");
    }
    drop(base);
}

#[tokio::test]
async fn a_base_that_is_gone_was_surely_not_changed() {
    let (mut world, base, id) = World::with_base(options()).await;
    drop(base);
    world.install(&id).await.unwrap();
    let (_, answer) = world.answer().await;
    assert!(answer.result == Fail && answer.message.contains("cannot be reached"), "{answer:?}");
    assert!(!answer.message.contains("may have taken effect"), "{answer:?}");
}
