//! Discovery and authentication.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Asking, CFG, basic, device, get};

#[tokio::test]
async fn host_meta_tells_the_root_to_those_who_accept_xrd() {
    let (_site, device) = device(|options| options.api_root = "/api/v1".into());
    let host_meta =
        |accept: &str| Asking::new("GET", "/.well-known/host-meta", &Value::Null).header("Accept", accept);
    let answer = host_meta("application/xrd+xml").of(&device).await.unwrap();
    assert_eq!(answer.code, 200);
    assert!(answer.head.contains("content-type: application/xrd+xml"));
    assert!(answer.body.contains("rel='restconf' href='/api/v1'"), "{}", answer.body);
    assert_eq!(host_meta("application/yang-data+json").of(&device).await.unwrap().code, 406);
    assert_eq!(host_meta("*/*").of(&device).await.unwrap().code, 200);
    assert_eq!(get(&device, CFG).await.code, 404, "the root is another one");
    assert_eq!(get(&device, &CFG.replace("/restconf", "/api/v1")).await.code, 204);
}

#[tokio::test]
async fn wrong_passwords_are_refused_counted_and_lock_the_account() {
    let (_site, device) = device(|options| {
        (options.lock_after, options.lock_time) = (Some(2), Duration::from_secs(3600));
    });
    let with = |password: &str| {
        Asking::new("GET", CFG, &Value::Null).header("Authorization", &basic("admin", password)).of(&device)
    };
    let refused = with("wrong").await.unwrap();
    assert_eq!((refused.code, refused.tag().as_str()), (401, "access-denied"));
    assert!(refused.head.contains(r#"www-authenticate: basic realm="restconf""#), "{}", refused.head);
    assert_eq!(with("cisco-123").await.unwrap().code, 204);
    for _ in 0..2 {
        assert_eq!(with("wrong").await.unwrap().code, 401);
    }
    assert_eq!(with("cisco-123").await.unwrap().code, 401, "it is locked");
    assert_eq!((device.denied(), device.locks()), (4, 1));
    device.set_credentials("admin", "new");
    assert_eq!(with("new").await.unwrap().code, 204);
    assert_eq!(with("cisco-123").await.unwrap().code, 401);
}
