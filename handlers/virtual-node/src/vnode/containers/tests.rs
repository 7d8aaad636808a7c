//! Tests of the containers on a base.

use serde_json::json;

use super::ContainerAction::{Activate, Start, Stop};
use super::pending::REPORT_DELAY;
use super::*;

const LIMIT: Duration = Duration::from_secs(330);

fn key() -> ContainerKey {
    "cart:1".into()
}

fn statuses(states: &[(&str, &str)]) -> Vec<ContainerStatusData> {
    let status = |(key, state): &(&str, &str)| {
        let name = key.split(':').next();
        serde_json::from_value(
            json!({ "key": key, "name": name, "pod_key": "all", "state": state.to_lowercase(),
            "change_time": "2026-11-24T08:00:00Z" }),
        )
        .unwrap()
    };
    states.iter().map(status).collect()
}

fn answer(result: &str) -> ContainerOperationResponseData {
    let answer = json!({ "container_key": "cart:1", "result": result.to_lowercase(), "reason": "NO_ROOM", "message": "no metaspace" });
    serde_json::from_value(answer).unwrap()
}

/// Returns the next step towards a container without other versions.
fn start(
    containers: &mut BaseContainers,
    key: &ContainerKey,
    image: &str,
    changed: bool,
    now: Instant,
) -> ContainerStep {
    containers.start(key, (&PodKey::All, image, changed), &[], now)
}

/// Answers an operation, and has the base report these states.
fn done(containers: &mut BaseContainers, action: ContainerAction, states: &[(&str, &str)], now: Instant) {
    assert!(containers.answered(action, &answer("SUCCESS"), now));
    containers.report(statuses(states), now);
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
    assert!(matches!(start(&mut containers, &key(), "a", false, now), ContainerStep::Wait(_)));
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)));
    containers.report(Vec::new(), now);
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Send(Start));
    assert_eq!(containers.stop(&key(), now), ContainerStep::Done);
}

#[test]
fn a_container_is_started_once_and_done_when_a_report_shows_it() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    let waits = ContainerStep::Wait("the base starts it".to_owned());
    assert_eq!(start(&mut containers, &key(), "a", false, now), waits);
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)), "one after the other");
    assert!(!containers.answered(Stop, &answer("SUCCESS"), now), "nobody asked for that");
    assert!(containers.answered(Start, &answer("SUCCESS"), now));
    assert!(!containers.answered(Start, &answer("SUCCESS"), now), "it was answered");
    assert_eq!(start(&mut containers, &key(), "a", false, now), waits, "an answer is no sight");
    containers.report(Vec::new(), now);
    assert_eq!(start(&mut containers, &key(), "a", false, now), waits, "a report from before the answer");
    containers.report(statuses(&[("cart:1", "ACTIVATED")]), now);
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Done);
}

#[test]
fn what_a_base_has_started_and_does_not_show_twice_later_is_started_again() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    containers.answered(Start, &answer("SUCCESS"), now);
    containers.report(Vec::new(), now + REPORT_DELAY);
    assert!(matches!(start(&mut containers, &key(), "a", false, now + REPORT_DELAY), ContainerStep::Wait(_)));
    containers.report(Vec::new(), now + REPORT_DELAY);
    assert_eq!(start(&mut containers, &key(), "a", false, now + REPORT_DELAY), ContainerStep::Send(Start));
}

#[test]
fn a_second_version_is_activated_once_it_is_loaded_and_the_one_of_an_older_pod_stays_inactive() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    let (second, states) =
        (ContainerKey::from("cart:2"), [("cart:1", "ACTIVATED"), ("cart:2", "DEACTIVATED")]);
    let older = [Rival { key: key(), youth: Ordering::Less }];
    let image = (&PodKey::All, "b", false);
    assert_eq!(containers.start(&second, image, &older, now), ContainerStep::Send(Start));
    containers.sending(&second, Start, "b", now);
    let loaded = ContainerOperationResponseData { container_key: second.clone(), ..answer("SUCCESS") };
    assert!(containers.answered(Start, &loaded, now));
    containers.report(statuses(&states), now);
    assert_eq!(containers.start(&second, image, &older, now), ContainerStep::Send(Activate));
    containers.sending(&second, Activate, "", now);
    assert!(containers.answered(Start, &loaded, now), "it is answered as a start is");
    assert!(matches!(containers.start(&second, image, &older, now), ContainerStep::Wait(_)));
    containers.report(statuses(&[("cart:1", "DEACTIVATED"), ("cart:2", "ACTIVATED")]), now);
    assert_eq!(containers.start(&second, image, &older, now), ContainerStep::Done);
    let younger = [Rival { key: second.clone(), youth: Ordering::Greater }];
    let waits = containers.start(&key(), (&PodKey::All, "a", false), &younger, now);
    assert!(
        matches!(&waits, ContainerStep::Failing { message, .. } if message.contains("cart:2")),
        "{waits:?}"
    );
    containers.report(statuses(&[("cart:1", "DEACTIVATED"), ("cart:2", "BROKEN")]), now);
    let back = containers.start(&key(), (&PodKey::All, "a", false), &younger, now);
    assert_eq!(back, ContainerStep::Send(Activate), "nothing runs instead");
}

#[test]
fn of_pods_of_one_age_the_version_stays_that_runs() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED"), ("cart:2", "DEACTIVATED")], now);
    let rival = |key: &str| [Rival { key: key.into(), youth: Ordering::Equal }];
    let waits = containers.start(&"cart:2".into(), (&PodKey::All, "b", false), &rival("cart:1"), now);
    assert!(matches!(waits, ContainerStep::Failing { .. }));
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Done);
}

#[test]
fn an_operation_whose_answer_is_lost_is_repeated_only_when_reports_show_no_trace_of_it() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    containers.sending(&key(), Start, "a", now);
    assert!(containers.answered(Start, &answer("UNKNOWN"), now));
    for seconds in [1, 5, 9] {
        containers.report(Vec::new(), now + Duration::from_secs(seconds));
    }
    let mut later = now + Duration::from_secs(20);
    containers.report(statuses(&[("cart:1", "RESOLVED")]), later);
    containers.report(Vec::new(), later);
    assert_eq!(under_way(&containers), [(key(), Start)], "one look is not enough");
    containers.report(Vec::new(), later);
    let ContainerStep::Failing { after, .. } = start(&mut containers, &key(), "a", false, later) else {
        panic!("it was lost")
    };
    assert!(containers.is_lost(&key()));
    later += after;
    assert_eq!(start(&mut containers, &key(), "a", false, later), ContainerStep::Send(Start));
}

#[test]
fn a_command_that_never_reached_its_base_is_repeated_after_a_minute_without_a_trace_of_it() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    containers.sending(&key(), Stop, "", now);
    for seconds in [20, 40, 59, 60] {
        containers.report(statuses(&[("cart:1", "ACTIVATED")]), now + Duration::from_secs(seconds));
        assert_eq!(under_way(&containers), [(key(), Stop)], "{seconds}");
    }
    containers.report(statuses(&[("cart:1", "ACTIVATED")]), now + Duration::from_secs(61));
    assert_eq!(under_way(&containers), []);
    assert!(containers.is_lost(&key()));
}

#[test]
fn a_stop_that_fails_after_the_container_is_gone_is_done() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    containers.sending(&key(), Stop, "", now);
    assert!(containers.answered(Stop, &answer("FAIL"), now));
    containers.report(statuses(&[("cart:1", "ACTIVATED")]), now);
    containers.report(Vec::new(), now);
    assert_eq!(containers.stop(&key(), now), ContainerStep::Done);
}

#[test]
fn what_a_base_started_by_mistake_is_stopped_at_once_unless_a_pod_has_it() {
    let now = Instant::now();
    let other: ContainerKey = "cart:7".into();
    for claimed in [false, true] {
        let mut containers = base(&[], now);
        containers.sending(&key(), Start, "a", now);
        assert!(containers.answered(Start, &answer("FAIL"), now));
        containers.mistaken((other.clone(), Container::default()), &key(), now);
        containers.report(Vec::new(), now);
        containers.report(statuses(&[("cart:7", "ACTIVATED")]), now);
        let pods = claimed.then(|| (other.clone(), (Arc::default(), PodKey::All))).into_iter().collect();
        let unclaimed = containers.unclaimed(&pods, None, now);
        let images: Vec<_> = unclaimed.into_iter().filter_map(|(_, _, container)| container?.image).collect();
        assert_eq!(images, if claimed { vec![] } else { vec!["a".to_owned()] });
        containers.report(Vec::new(), now + REPORT_DELAY);
        assert!(containers.unclaimed(&pods, None, now).is_empty());
    }
}

#[test]
fn a_container_of_another_pod_is_neither_done_nor_started() {
    let now = Instant::now();
    let mut containers = base(&[], now);
    let mut status = statuses(&[("cart:1", "ACTIVATED")]);
    status[0].pod_key = PodKey::Pod { namespace: "default".to_owned(), name: "theirs".to_owned() };
    containers.report(status, now);
    let ours = PodKey::Pod { namespace: "default".to_owned(), name: "ours".to_owned() };
    let step = containers.start(&key(), (&ours, "a", false), &[], now);
    assert!(
        matches!(&step, ContainerStep::Failing { message, .. } if message.contains("theirs")),
        "{step:?}"
    );
}

#[test]
fn a_status_that_was_overtaken_is_ignored_once() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    let mut old = statuses(&[("cart:1", "BROKEN")]);
    old[0].change_time = serde_json::from_value(json!("2026-11-24T07:59:58Z")).unwrap();
    let state = |containers: &BaseContainers| containers.shown(&key()).map(|shown| shown.state);
    containers.report(old.clone(), now);
    assert_eq!(state(&containers), Some(ContainerState::Activated));
    containers.report(old, now);
    assert_eq!(state(&containers), Some(ContainerState::Broken), "the clock of the base was set back");
    containers.report(statuses(&[("cart:1", "DEACTIVATED")]), now);
    assert_eq!(state(&containers), Some(ContainerState::Deactivated));
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
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Done);
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
    assert!(matches!(start(&mut containers, &key(), "a", false, before), ContainerStep::Wait(_)));
    containers.time_out(now + LIMIT);
    assert_eq!(under_way(&containers), []);
    let ContainerStep::Failing { reason, after, .. } =
        start(&mut containers, &key(), "a", false, now + LIMIT)
    else {
        panic!("it has failed")
    };
    assert_eq!(reason, "OperationTimedOut");
    let later = now + LIMIT + after;
    assert_eq!(start(&mut containers, &key(), "a", false, later), ContainerStep::Send(Start));
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
        let ContainerStep::Failing { reason, message, after } =
            start(&mut containers, &key(), "a", false, now)
        else {
            panic!("it has failed")
        };
        assert_eq!((reason.as_str(), message.as_str()), ("NO_ROOM", "no metaspace"));
        delays.push(after.as_secs_f64());
        now += after;
        assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Send(Stop));
        containers.sending(&key(), Stop, "", now);
        done(&mut containers, Stop, &[], now);
        assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Send(Start));
    }
    for (delay, expected) in delays.into_iter().zip([10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]) {
        assert!((delay / expected - 1.0).abs() < 0.101, "{delay} s for {expected} s");
    }
    containers.sending(&key(), Start, "a", now);
    done(&mut containers, Start, &[("cart:1", "ACTIVATED")], now);
    containers.report(Vec::new(), now);
    assert_eq!(
        start(&mut containers, &key(), "a", false, now),
        ContainerStep::Send(Start),
        "it is forgotten"
    );
}

/// Starts the container with this image, lets the base lose it at once, and returns the time from this start to the next possible one.
fn start_and_lose(containers: &mut BaseContainers, image: &str, now: &mut Instant) -> Duration {
    let began = *now;
    containers.sending(&key(), Start, image, *now);
    done(containers, Start, &[("cart:1", "ACTIVATED")], *now);
    *now += REPORT_DELAY;
    containers.report(Vec::new(), *now);
    while let ContainerStep::Failing { reason, after, .. } = start(containers, &key(), image, false, *now) {
        assert_eq!(reason, "CrashLoopBackOff");
        *now += after;
        containers.report(Vec::new(), *now);
    }
    assert_eq!(start(containers, &key(), image, false, *now), ContainerStep::Send(Start));
    *now - began
}

#[test]
fn a_container_that_the_base_loses_again_and_again_is_started_ever_later() {
    let mut now = Instant::now();
    let mut containers = base(&[], now);
    assert_eq!(start_and_lose(&mut containers, "a", &mut now), REPORT_DELAY);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        let (delay, usual) = (start_and_lose(&mut containers, "a", &mut now), Duration::from_secs(seconds));
        assert!(delay >= usual * 9 / 10 && delay <= usual * 11 / 10, "{delay:?} instead of {usual:?}");
    }
    now += Duration::from_secs(600);
    assert_eq!(start_and_lose(&mut containers, "a", &mut now), REPORT_DELAY, "it ran for long");
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
    assert!(lose(&mut containers, "a") > REPORT_DELAY);
    assert_eq!(lose(&mut containers, "b"), REPORT_DELAY);
    assert_eq!(lose(&mut containers, "a"), REPORT_DELAY, "the image of before");
    containers.forget_starts(&key());
    assert_eq!(lose(&mut containers, "a"), REPORT_DELAY);
    containers.sending(&key(), Start, "a", now);
    done(&mut containers, Start, &[("cart:1", "ACTIVATED")], now);
    assert_eq!(start(&mut containers, &key(), "b", false, now), ContainerStep::Send(Stop));
    containers.sending(&key(), Stop, "", now);
    done(&mut containers, Stop, &[], now);
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Send(Start), "there and back");
}

#[test]
fn a_changed_image_is_stopped_and_then_started() {
    let now = Instant::now();
    let mut containers = base(&[("cart:1", "ACTIVATED")], now);
    assert_eq!(start(&mut containers, &key(), "a", false, now), ContainerStep::Done, "it was found running");
    assert_eq!(start(&mut containers, &key(), "b", false, now), ContainerStep::Send(Stop));
    containers.sending(&key(), Stop, "", now);
    done(&mut containers, Stop, &[], now);
    assert_eq!(start(&mut containers, &key(), "b", true, now), ContainerStep::Send(Start));
    containers.sending(&key(), Start, "b", now);
    done(&mut containers, Start, &[("cart:1", "ACTIVATED")], now);
    assert_eq!(start(&mut containers, &key(), "b", true, now), ContainerStep::Done, "the status is late");
    let mut found = base(&[("cart:1", "ACTIVATED")], now);
    assert_eq!(
        start(&mut found, &key(), "b", true, now),
        ContainerStep::Send(Stop),
        "changed while nobody looked"
    );
    assert_eq!(
        start(&mut found, &key(), "b", false, now),
        ContainerStep::Send(Stop),
        "it was not stopped yet"
    );
}

#[test]
fn what_is_loaded_is_activated_unless_its_state_is_unknown_and_what_is_being_loaded_is_waited_for() {
    let now = Instant::now();
    let mut off = base(&[("cart:1", "DEACTIVATED")], now);
    assert_eq!(start(&mut off, &key(), "a", false, now), ContainerStep::Send(Activate));
    assert_eq!(off.stop(&key(), now), ContainerStep::Send(Stop));
    let mut unknown = statuses(&[("cart:1", "DEACTIVATED")]);
    unknown[0].reason = UNKNOWN_STATE.to_owned();
    off.report(unknown, now);
    assert!(matches!(start(&mut off, &key(), "a", false, now), ContainerStep::Failing { .. }));
    let mut loads = base(&[("cart:1", "RESOLVED")], now);
    assert!(matches!(start(&mut loads, &key(), "a", false, now), ContainerStep::Wait(_)));
    let waits = start(&mut loads, &key(), "a", false, now + LIMIT * 2);
    assert!(matches!(waits, ContainerStep::Wait(_)), "it may run by now: {waits:?}");
    loads.report(statuses(&[("cart:1", "RESOLVED")]), now + LIMIT);
    assert_eq!(start(&mut loads, &key(), "a", false, now + LIMIT), ContainerStep::Send(Stop), "it is stuck");
    let mut stopped = base(&[("cart:1", "STOPPED")], now);
    assert_eq!(stopped.stop(&key(), now), ContainerStep::Done);
    assert_eq!(start(&mut stopped, &key(), "a", false, now), ContainerStep::Send(Start));
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
    done(&mut containers, Start, &[("cart:1", "ACTIVATED")], now);
    assert!(containers.close());
    assert!(matches!(start(&mut containers, &"other:1".into(), "a", false, now), ContainerStep::Wait(_)));
    assert!(matches!(containers.stop(&key(), now), ContainerStep::Wait(_)));
}
