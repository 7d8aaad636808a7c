//! Faults of single requests.

use std::time::Duration;

use serde_json::Value;
use staffetta_iosxe_device::{Fault, Requests};
use tokio::time::timeout;

use crate::client::{Asking, CFG, app, ask, configure, device, get};

#[tokio::test]
async fn the_request_that_is_meant_is_refused_and_nothing_is_done() {
    let (_site, device) = device(|_| ());
    let lock = Fault::Refuse { code: 409, tag: "lock-denied".into() };
    device.inject(Requests::any().method("POST").after(1), 1, lock);
    assert_eq!(configure(&device, "a").await.code, 201);
    let refused = configure(&device, "b").await;
    assert_eq!((refused.code, refused.tag().as_str()), (409, "lock-denied"));
    assert_eq!(device.pending_faults(), 0);
    assert_eq!(device.ledger().existing().into_iter().collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn an_answer_can_get_lost_after_it_took_effect_and_before() {
    let (_site, device) = device(|_| ());
    device.inject(Requests::any(), 1, Fault::Cut);
    device.inject(Requests::any(), 1, Fault::CutAfter);
    let path = format!("{CFG}/apps");
    for existing in [0, 1] {
        Asking::new("POST", &path, &app("a")).of(&device).await.unwrap_err();
        assert_eq!(device.ledger().existing().len(), existing);
    }
    assert_eq!(configure(&device, "a").await.code, 409);
}

#[tokio::test]
async fn an_answer_can_be_no_json_late_or_whatever_the_test_says() {
    let (_site, device) = device(|_| ());
    configure(&device, "a").await;
    device.inject(Requests::any(), 1, Fault::Garbage);
    device.inject(Requests::any(), 1, Fault::Answer { code: 503, body: "busy".into() });
    device.inject(Requests::any(), 1, Fault::Delay(Duration::from_millis(5)));
    let garbage = get(&device, CFG).await;
    assert_eq!(garbage.code, 200);
    serde_json::from_str::<Value>(&garbage.body).unwrap_err();
    let busy = get(&device, CFG).await;
    assert_eq!((busy.code, busy.body.as_str()), (503, "busy"));
    let began = std::time::Instant::now();
    assert_eq!(get(&device, CFG).await.code, 200);
    assert!(began.elapsed() >= Duration::from_millis(5));
}

#[tokio::test]
async fn a_request_can_go_without_an_answer_while_others_get_theirs() {
    let (_site, device) = device(|_| ());
    device.inject(Requests::any().method("DELETE"), 1, Fault::Hang);
    let path = format!("{CFG}/apps/app=a");
    let hanging = Asking::new("DELETE", &path, &Value::Null).of(&device);
    timeout(Duration::from_millis(50), hanging).await.unwrap_err();
    assert_eq!(ask(&device, "GET", CFG, &Value::Null).await.code, 204);
    device.inject(Requests::any(), 1, Fault::Hang);
    device.clear_faults();
    assert_eq!(get(&device, CFG).await.code, 204);
    assert_eq!(device.counts().of("GET app-hosting-cfg-data"), 2);
}
