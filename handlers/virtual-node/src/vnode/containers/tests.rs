//! Tests of the containers on a base.

use serde_json::json;

use super::ContainerAction::{Start, Stop};
use super::*;

const LIMIT: Duration = Duration::from_secs(330);

fn key() -> ContainerKey {
    "cart:1".into()
}

fn statuses(states: &[(&str, &str)]) -> Vec<ContainerStatusData> {
    let status = |(key, state): &(&str, &str)| {
        let name = key.split(':').next();
        serde_json::from_value(json!({ "key": key, "name": name, "podKey": "all", "state": state,
            "changeTime": "2026-11-24T08:00:00Z" }))
        .unwrap()
    };
    states.iter().map(status).collect()
}

fn answer(result: &str) -> ContainerOperationResponseData {
    let answer =
        json!({ "containerKey": "cart:1", "result": result, "reason": "NO_ROOM", "message": "no metaspace" });
    serde_json::from_value(answer).unwrap()
}

/// The operations under way.
fn under_way(containers: &BaseContainers) -> Vec<(ContainerKey, ContainerAction)> {
    containers.under_way().map(|(key, action)| (key.clone(), action)).collect()
}

/// The containers of a base that has reported these states.
fn base(states: &[(&str, &str)], now: Instant) -> BaseContainers {
    let mut containers = BaseContainers::new(LIMIT);
    containers.report(statuses(states), now);
    containers
}

#[test]
fn nothing_is_started_or_stopped_before_the_first_report() {
    let (mut containers, now) = (BaseContainers::new(LIMIT), Instant::now());
    assert!(matches!(containers.start(&key(), "a", false, now), ContainerStep::Wait(_)));
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)));
    containers.report(Vec::new(), now);
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Send(Start));
    assert_eq!(containers.stop(&key(), now), ContainerStep::Done);
}

#[test]
fn a_container_is_started_once_and_runs_with_its_answer() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    assert_eq!(
        containers.start(&key(), "a", false, now),
        ContainerStep::Wait("the base starts it".to_owned())
    );
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)), "one after the other");
    assert!(!containers.answered(Stop, &answer("SUCCESS"), now), "nobody asked for that");
    assert!(containers.answered(Start, &answer("SUCCESS"), now));
    assert!(!containers.answered(Start, &answer("SUCCESS"), now), "it was answered");
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Done);
}

#[test]
fn a_report_from_before_an_answer_does_not_start_it_again_and_a_later_one_does() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    containers.answered(Start, &answer("SUCCESS"), now);
    containers.report(Vec::new(), now + STALE_REPORT_WINDOW / 2);
    assert_eq!(containers.start(&key(), "a", false, now + STALE_REPORT_WINDOW / 2), ContainerStep::Done);
    containers.report(Vec::new(), now + STALE_REPORT_WINDOW);
    assert_eq!(containers.start(&key(), "a", false, now + STALE_REPORT_WINDOW), ContainerStep::Send(Start));
}

#[test]
fn all_reports_from_before_an_answer_are_ignored() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    containers.sending(&key(), Stop, "", now);
    containers.answered(Stop, &answer("SUCCESS"), now);
    for seconds in [1, 2] {
        containers.report(statuses(&[("cart:1", "ACTIVATED")]), now + Duration::from_secs(seconds));
        assert!(containers.shown(&key()).is_none(), "{seconds} s after the answer");
    }
    containers.report(Vec::new(), now + STALE_REPORT_WINDOW);
    assert!(containers.by_key.is_empty());
}

#[test]
fn an_answer_that_is_lost_is_replaced_by_the_report_of_its_effect() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    containers.report(statuses(&[("cart:1", "RESOLVED")]), now);
    assert_eq!(under_way(&containers), [(key(), Start)]);
    containers.report(statuses(&[("cart:1", "ACTIVATED")]), now);
    assert_eq!(under_way(&containers), []);
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Done);
    containers.sending(&key(), Stop, "", now);
    containers.report(statuses(&[("cart:1", "ACTIVATED")]), now);
    assert_eq!(under_way(&containers), [(key(), Stop)]);
    containers.report(Vec::new(), now);
    assert_eq!(under_way(&containers), []);
    assert_eq!(containers.stop(&key(), now), ContainerStep::Done);
}

#[test]
fn an_operation_that_nobody_answers_fails_at_its_time_limit_and_is_repeated() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    let before = now + LIMIT - Duration::from_millis(1);
    containers.time_out(before);
    assert_eq!(under_way(&containers), [(key(), Start)]);
    assert!(matches!(containers.start(&key(), "a", false, before), ContainerStep::Wait(_)));
    containers.time_out(now + LIMIT);
    assert_eq!(under_way(&containers), []);
    let ContainerStep::Failing { reason, after, .. } = containers.start(&key(), "a", false, now + LIMIT)
    else {
        panic!("it has failed")
    };
    assert_eq!(reason, "OperationTimedOut");
    let later = now + LIMIT + after;
    assert_eq!(containers.start(&key(), "a", false, later), ContainerStep::Send(Start));
}

#[test]
fn failures_are_repeated_ever_later_and_say_why() {
    let mut now = Instant::now();
    let mut containers = base(&[], now);
    let mut delays = Vec::new();
    for _ in 0..7 {
        containers.sending(&key(), Start, "a", now);
        assert!(containers.answered(Start, &answer("FAIL"), now));
        // Bases keep what they could not start, and it must be stopped first.
        containers.report(statuses(&[("cart:1", "BROKEN")]), now);
        let ContainerStep::Failing { reason, message, after } = containers.start(&key(), "a", false, now)
        else {
            panic!("it has failed")
        };
        assert_eq!((reason.as_str(), message.as_str()), ("NO_ROOM", "no metaspace"));
        delays.push(after.as_secs_f64());
        now += after;
        assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Send(Stop));
        containers.sending(&key(), Stop, "", now);
        assert!(containers.answered(Stop, &answer("SUCCESS"), now));
        assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Send(Start));
    }
    for (delay, expected) in delays.into_iter().zip([10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]) {
        assert!((delay / expected - 1.0).abs() < 0.101, "{delay} s for {expected} s");
    }
    containers.sending(&key(), Start, "a", now);
    containers.answered(Start, &answer("SUCCESS"), now);
    now += STALE_REPORT_WINDOW;
    containers.report(Vec::new(), now);
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Send(Start), "it is forgotten");
}

/// Starts the container with this image, lets the base lose it at once, and returns the time from this start to the next possible one.
fn start_and_lose(containers: &mut BaseContainers, image: &str, now: &mut Instant) -> Duration {
    let began = *now;
    containers.sending(&key(), Start, image, *now);
    containers.answered(Start, &answer("SUCCESS"), *now);
    *now += STALE_REPORT_WINDOW;
    containers.report(Vec::new(), *now);
    while let ContainerStep::Failing { reason, after, .. } = containers.start(&key(), image, false, *now) {
        assert_eq!(reason, "CrashLoopBackOff");
        *now += after;
        containers.report(Vec::new(), *now);
    }
    assert_eq!(containers.start(&key(), image, false, *now), ContainerStep::Send(Start));
    *now - began
}

#[test]
fn a_container_that_the_base_loses_again_and_again_is_started_ever_later() {
    let mut now = Instant::now();
    let mut containers = base(&[], now);
    assert_eq!(start_and_lose(&mut containers, "a", &mut now), STALE_REPORT_WINDOW);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        let (delay, usual) = (start_and_lose(&mut containers, "a", &mut now), Duration::from_secs(seconds));
        assert!(delay >= usual * 9 / 10 && delay <= usual * 11 / 10, "{delay:?} instead of {usual:?}");
    }
    now += Duration::from_secs(600);
    assert_eq!(start_and_lose(&mut containers, "a", &mut now), STALE_REPORT_WINDOW, "it ran for long");
    now += Duration::from_secs(600);
    containers.report(Vec::new(), now);
    assert!(containers.by_key.is_empty());
}

#[test]
fn another_image_and_another_pod_do_not_wait_for_the_starts_before() {
    let mut now = Instant::now();
    let mut containers = base(&[], now);
    let mut lose = |containers: &mut BaseContainers, image| start_and_lose(containers, image, &mut now);
    lose(&mut containers, "a");
    assert!(lose(&mut containers, "a") > STALE_REPORT_WINDOW);
    assert_eq!(lose(&mut containers, "b"), STALE_REPORT_WINDOW);
    assert_eq!(lose(&mut containers, "a"), STALE_REPORT_WINDOW, "the image of before");
    containers.forget_starts(&key());
    assert_eq!(lose(&mut containers, "a"), STALE_REPORT_WINDOW);
    containers.sending(&key(), Start, "a", now);
    containers.answered(Start, &answer("SUCCESS"), now);
    assert_eq!(containers.start(&key(), "b", false, now), ContainerStep::Send(Stop));
    containers.sending(&key(), Stop, "", now);
    containers.answered(Stop, &answer("SUCCESS"), now);
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Send(Start), "there and back");
}

#[test]
fn a_changed_image_is_stopped_and_then_started() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    assert_eq!(containers.start(&key(), "a", false, now), ContainerStep::Done, "it was found running");
    assert_eq!(containers.start(&key(), "b", false, now), ContainerStep::Send(Stop));
    containers.sending(&key(), Stop, "", now);
    containers.answered(Stop, &answer("SUCCESS"), now);
    assert_eq!(containers.start(&key(), "b", true, now), ContainerStep::Send(Start));
    containers.sending(&key(), Start, "b", now);
    containers.answered(Start, &answer("SUCCESS"), now);
    assert_eq!(containers.start(&key(), "b", true, now), ContainerStep::Done, "the status is late");
    let mut found = base(&[("cart:1", "ACTIVATED")], now);
    assert_eq!(found.start(&key(), "b", true, now), ContainerStep::Send(Stop), "changed while nobody looked");
    assert_eq!(found.start(&key(), "b", false, now), ContainerStep::Send(Stop), "it was not stopped yet");
}

#[test]
fn what_a_base_switched_off_is_not_switched_on_and_what_it_loads_is_waited_for() {
    let now = Instant::now();
    let mut off = base(&[("cart:1", "DEACTIVATED")], now);
    assert!(matches!(off.start(&key(), "a", false, now), ContainerStep::Failing { .. }));
    assert_eq!(off.stop(&key(), now), ContainerStep::Send(Stop));
    let mut loads = base(&[("cart:1", "RESOLVED")], now);
    assert!(matches!(loads.start(&key(), "a", false, now), ContainerStep::Wait(_)));
    loads.report(statuses(&[("cart:1", "RESOLVED")]), now + LIMIT);
    assert_eq!(loads.start(&key(), "a", false, now + LIMIT), ContainerStep::Send(Stop), "it is stuck");
    let mut stopped = base(&[("cart:1", "STOPPED")], now);
    assert_eq!(stopped.stop(&key(), now), ContainerStep::Done);
    assert_eq!(stopped.start(&key(), "a", false, now), ContainerStep::Send(Start));
}

#[test]
fn of_a_container_that_is_reported_twice_the_newest_state_counts_and_nothing_is_kept_of_those_that_are_gone()
{
    let now = Instant::now();
    let mut twice = statuses(&[("cart:1", "ACTIVATED"), ("cart:1", "BROKEN")]);
    twice[1].change_time = serde_json::from_value(json!("2026-11-24T07:00:00Z")).unwrap();
    let mut containers = BaseContainers::new(LIMIT);
    containers.report(twice, now);
    assert_eq!(containers.shown(&key()).map(|shown| shown.state), Some(ContainerState::Activated));
    containers.report(Vec::new(), now);
    assert!(containers.by_key.is_empty());
}

#[test]
fn nothing_is_sent_to_a_base_that_is_about_to_be_given_up_and_none_is_given_up_with_an_operation_under_way() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    assert!(!containers.close());
    containers.answered(Start, &answer("SUCCESS"), now);
    assert!(containers.close());
    assert!(matches!(containers.start(&"other:1".into(), "a", false, now), ContainerStep::Wait(_)));
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)));
}
