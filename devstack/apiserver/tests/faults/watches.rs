//! Watches that are cut, silent or spoilt.

use std::time::Duration;

use kube::Error;
use kube::api::{DeleteParams, WatchEvent};
use serde_json::Value;
use staffetta_apiserver::{Fault, Requests};

use crate::world::{World, chunks};

fn watches() -> Requests {
    Requests::any().verb("watch").resource("leases")
}

pub(crate) async fn watches_can_be_cut_and_resumed(world: &World) {
    let version = world.version().await;
    let mut watch = world.watch(&version).await;
    world.create("a").await.unwrap();
    assert_eq!(watch.added().await, "a");
    world.faults().cut_watches();
    watch.is_cut().await;
    assert_eq!(world.watch(&version).await.added().await, "a");
}

pub(crate) async fn a_watch_can_be_cut_in_the_middle_of_an_event(world: &World) {
    let version = world.version().await;
    world.create("a").await.unwrap();
    world.faults().inject(watches(), 1, Fault::CutMid);
    let query = format!("?watch=true&resourceVersion={version}&timeoutSeconds=20");
    let (text, complete) = chunks(world.get(&world.path(&query)).await.unwrap().into_body()).await;
    assert!(!complete, "the answer has no end");
    assert!(text.starts_with(r#"{"type":"ADDED","object":{"#), "{text}");
    assert!(serde_json::from_str::<Value>(&text).unwrap_err().is_eof(), "{text}");
    assert_eq!(world.watch(&version).await.added().await, "a");
}

pub(crate) async fn a_silent_watch_neither_ends_nor_tells_anything(world: &World) {
    let query = format!("?watch=true&resourceVersion={}&timeoutSeconds=1", world.version().await);
    let early = world.get(&world.path(&query)).await.unwrap();
    world.faults().pause_watches();
    let late = world.get(&world.path(&query)).await.unwrap();
    world.create("a").await.unwrap();
    let reported = async { tokio::join!(chunks(early.into_body()), chunks(late.into_body())) };
    let mut reported = std::pin::pin!(reported);
    // Longer than the watches were to last.
    let silent = tokio::time::timeout(Duration::from_millis(1200), &mut reported).await;
    assert!(silent.is_err(), "{silent:?}");
    world.faults().resume_watches();
    let (early, late) = reported.await;
    for (text, complete) in [early, late] {
        assert!(complete && text.contains(r#""type":"ADDED""#), "{text}");
    }
}

pub(crate) async fn an_event_can_be_garbage_and_the_next_one_is_not(world: &World) {
    let version = world.version().await;
    world.faults().inject(watches(), 1, Fault::Garbage);
    let mut watch = world.watch(&version).await;
    for name in ["a", "b"] {
        world.create(name).await.unwrap();
    }
    assert!(matches!(watch.next().await, Some(Err(Error::SerdeError(_)))));
    assert_eq!(watch.added().await, "b");
}

pub(crate) async fn an_object_can_be_reported_as_nobody_can_read_it(world: &World) {
    let version = world.version().await;
    world.faults().inject(watches(), 1, Fault::undecodable("poison", "/spec"));
    let mut watch = world.watch(&version).await;
    for name in ["poison", "sound"] {
        world.create(name).await.unwrap();
    }
    // kube takes the line for a Status without content: what one sees is a refusal with the code 0.
    assert!(matches!(watch.next().await, Some(Err(Error::Api(status))) if status.code == 0));
    assert_eq!(watch.added().await, "sound");
    world.leases().delete("poison", &DeleteParams::default()).await.unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::Api(_)))), "whatever is told of it");
}

pub(crate) async fn a_watch_can_say_that_its_version_is_gone(world: &World) {
    let version = world.version().await;
    world.faults().inject(watches(), 1, Fault::watch_error(410));
    let mut watch = world.watch(&version).await;
    let Some(Ok(WatchEvent::Error(status))) = watch.next().await else { panic!("an ERROR comes") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(watch.next().await.is_none(), "the error is the end");
}
