//! Connections that are cut, and answers that come late or never.

use std::time::Duration;

use kube::Error;
use staffetta_apiserver::{Fault, Requests};

use crate::world::{World, chunks, code};

pub(crate) async fn a_cut_request_is_done_or_not_as_the_fault_says(world: &World) {
    for (name, fault, done) in [("before", Fault::Cut, false), ("after", Fault::CutAfter, true)] {
        world.faults().inject(Requests::any().verb("create"), 1, fault);
        let error = world.create(name).await.unwrap_err();
        assert!(!matches!(error, Error::Api(_)), "{name}: {error:?} is no answer of the server");
        assert_eq!(world.leases().get_opt(name).await.unwrap().is_some(), done, "{name}");
    }
    let codes: Vec<_> = world.requests().iter().filter(|r| r.is_write()).map(|r| r.code).collect();
    assert_eq!(codes, [0, 0], "nobody was answered");
}

pub(crate) async fn an_answer_can_break_off_in_the_middle(world: &World) {
    world.create("a").await.unwrap();
    let (whole, complete) = chunks(world.get(&world.path("/a")).await.unwrap().into_body()).await;
    assert!(complete);
    world.faults().inject(Requests::any().verb("get"), 1, Fault::CutMid);
    let (half, complete) = chunks(world.get(&world.path("/a")).await.unwrap().into_body()).await;
    assert!(!complete, "the answer has no end");
    assert_eq!(half, whole[..whole.len() / 2]);
}

pub(crate) async fn a_request_can_hang_and_another_be_late(world: &World) {
    world.faults().inject(Requests::any().verb("get").name("a"), 1, Fault::Hang);
    let leases = world.leases();
    let hung = tokio::time::timeout(Duration::from_millis(100), leases.get("a")).await;
    assert!(hung.is_err(), "no answer comes");
    world.faults().inject(Requests::any().verb("get"), 1, Fault::Delay(Duration::from_millis(50)));
    let start = std::time::Instant::now();
    assert_eq!(code(&leases.get("a").await.unwrap_err()), 404);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

pub(crate) async fn a_request_that_hangs_is_done_or_not_as_the_fault_says(world: &World) {
    for (name, fault, done) in [("before", Fault::Hang, false), ("after", Fault::HangAfter, true)] {
        world.clear_requests();
        world.faults().inject(Requests::any().verb("create"), 1, fault);
        let recorded = async {
            while world.requests().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = world.create(name) => panic!("{name}: {answer:?} where there was to be no answer"),
            () = recorded => {}
        }
        assert_eq!(world.requests()[0].code, 0, "{name}: nobody was answered");
        assert_eq!(world.leases().get_opt(name).await.unwrap().is_some(), done, "{name}");
    }
}

pub(crate) async fn requests_can_be_held_back_until_they_are_let_go(world: &World) {
    world.faults().inject(Requests::any().verb("create"), 2, Fault::Hold);
    let leases = world.leases();
    let let_go = async || {
        world.faults().until_held(2).await;
        assert!(leases.get_opt("a").await.unwrap().is_none() && leases.get_opt("b").await.unwrap().is_none());
        world.faults().let_go();
    };
    let (a, b, ()) = tokio::join!(world.create("a"), world.create("b"), let_go());
    a.and(b).unwrap();
    world.create("c").await.unwrap();
}

pub(crate) async fn an_outage_cuts_everybody_off_and_loses_nothing(world: &World) {
    let mut watch = world.watch(&world.version().await).await;
    world.create("a").await.unwrap();
    assert_eq!(watch.added().await, "a");
    world.faults().begin_outage();
    assert!(world.leases().get("a").await.is_err());
    watch.is_cut().await;
    world.faults().end_outage();
    world.leases().get("a").await.unwrap();
}
