//! Answers that are not what the server would have said.

use http::StatusCode;
use http::header::{DATE, RETRY_AFTER};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Error;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use staffetta_apiserver::{Fault, Requests};

use crate::world::{World, chunks, code, items};

pub(crate) async fn a_refusal_hits_the_requests_it_names_as_often_as_it_says(world: &World) {
    let fault = Fault::Refuse { code: 503, retry_after: Some(7) };
    let creates = || Requests::any().verb("create").resource("leases").namespace(&world.namespace);
    world.faults().inject(creates().namespace("elsewhere"), 1, Fault::status(500));
    world.faults().inject(creates(), 2, fault.clone());
    for _ in 0..2 {
        let Err(Error::Api(status)) = world.create("a").await else {
            panic!("the request was refused");
        };
        assert_eq!((status.code, status.reason.as_str()), (503, "ServiceUnavailable"));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);
    }
    world.leases().list(&ListParams::default()).await.unwrap();
    world.create("a").await.unwrap();
    assert_eq!(world.faults().pending(), 1);
    let codes: Vec<_> = world.requests().iter().filter(|r| r.is_write()).map(|r| r.code).collect();
    assert_eq!(codes, [503, 503, 201]);

    world.faults().inject(Requests::any().verb("get"), 1, fault);
    let answer = world.get(&world.path("/a")).await.unwrap();
    assert_eq!(answer.headers()[RETRY_AFTER], "7");
}

pub(crate) async fn an_answer_can_be_chosen_to_the_letter(world: &World) {
    world.create("a").await.unwrap();
    let patches = || Requests::any().verb("patch").name("a");
    world.faults().inject(patches(), 1, Fault::invalid(&[("metadata.uid", "FieldValueInvalid")]));
    let html = "<html>502 Bad Gateway</html>";
    world.faults().inject(patches(), 1, Fault::Answer { code: 502, body: html.into() });
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let patched = async || world.leases().patch("a", &PatchParams::default(), &patch).await;
    let Err(Error::Api(status)) = patched().await else { panic!("it was refused") };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let causes = status.details.unwrap().causes;
    let causes: Vec<_> = causes.iter().map(|c| (c.field.as_str(), c.reason.as_str())).collect();
    assert_eq!(causes, [("metadata.uid", "FieldValueInvalid")]);
    assert_eq!(code(&patched().await.unwrap_err()), 502);
    assert_eq!(world.leases().get("a").await.unwrap().metadata.labels, None, "nothing was done");
    assert!(patched().await.is_ok());
    world.faults().inject(Requests::any().verb("get"), 1, Fault::Busy { code: 429, retry_after: 7 });
    let answer = world.get(&world.path("/a")).await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()[RETRY_AFTER]),
        (StatusCode::TOO_MANY_REQUESTS, &"7".parse().unwrap())
    );
    let text = String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap();
    assert_eq!(text, "Too many requests, please try again later.\n");
}

pub(crate) async fn a_fault_can_be_for_what_a_body_says(world: &World) {
    let of_b = Requests::any().verb("create").saying("\"name\":\"b\"");
    world.faults().inject(of_b, 1, Fault::status(503));
    world.create("a").await.expect("its body says something else");
    assert_eq!(code(&world.create("b").await.unwrap_err()), 503);
    world.create("b").await.expect("the body goes on to the server as it came");
}

pub(crate) async fn an_answer_can_be_garbage(world: &World) {
    world.faults().inject(Requests::any().verb("create"), 1, Fault::Garbage);
    let error = world.create("a").await.unwrap_err();
    assert!(matches!(error, Error::SerdeError(_)), "{error:?}");
    world.leases().get("a").await.expect("it was done");
    world.faults().inject(Requests::any().verb("list"), 1, Fault::Garbage);
    let error = world.leases().list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, Error::SerdeError(_)), "{error:?}");
}

pub(crate) async fn an_object_can_be_shown_as_nobody_can_read_it(world: &World) {
    for name in ["poison", "sound"] {
        world.create(name).await.unwrap();
    }
    // From 128 KiB on, a real server compresses what it may.
    let ballast = json!({"metadata": {"annotations": {"example.org/ballast": "x".repeat(200_000)}}});
    world.leases().patch("sound", &PatchParams::default(), &Patch::Merge(&ballast)).await.unwrap();
    world.faults().inject(Requests::any().resource("leases"), 4, Fault::undecodable("poison", "/spec"));
    let error = world.leases().list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, Error::SerdeError(_)), "one object costs the whole list: {error:?}");
    let error = world.leases().get("poison").await.unwrap_err();
    assert!(matches!(error, Error::SerdeError(_)), "{error:?}");
    world.leases().get("sound").await.unwrap();
    let (list, _) = chunks(world.get(&world.path("")).await.unwrap().into_body()).await;
    let specs: Vec<_> = items(&list).iter().map(|item| item["spec"].is_object()).collect();
    assert_eq!(specs, [false, true], "the other one is as it was");
    world.leases().get("poison").await.expect("the server has it as it was made");
}

pub(crate) async fn dates_can_be_wrong(world: &World) {
    let ahead = async || {
        let answer = world.get(&world.path("")).await.unwrap();
        let date = answer.headers()[DATE].to_str().unwrap();
        let date = rfc2822::DateTimeParser::new().parse_timestamp(date).unwrap();
        date.duration_since(Timestamp::now()).abs() > SignedDuration::from_mins(30)
    };
    assert!(!ahead().await);
    for skew in [3600, -3600] {
        world.faults().skew_dates(skew);
        assert!(ahead().await, "{skew}");
    }
    world.faults().skew_dates(0);
    assert!(!ahead().await);
}

pub(crate) async fn the_record_tells_reads_from_writes(world: &World) {
    world.create("a").await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    world.leases().patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(code(&world.leases().get("b").await.unwrap_err()), 404);
    let requests = world.requests();
    assert!(requests.iter().all(|r| (r.resource.as_str(), &r.namespace) == ("leases", &world.namespace)));
    let seen: Vec<_> =
        requests.iter().map(|r| (r.verb.as_str(), r.name.as_str(), r.code, r.is_write())).collect();
    assert_eq!(seen, [("create", "", 201, true), ("patch", "a", 200, true), ("get", "b", 404, false)]);
    world.clear_requests();
    assert!(world.requests().is_empty());
}

pub(crate) async fn faults_that_have_not_happened_can_be_forgotten(world: &World) {
    world.faults().inject(Requests::any(), usize::MAX, Fault::Cut);
    world.faults().inject(Requests::any(), 1, Fault::Hang);
    assert_eq!(world.faults().pending(), usize::MAX);
    world.faults().clear();
    assert_eq!(world.faults().pending(), 0);
    world.create("a").await.unwrap();
}
