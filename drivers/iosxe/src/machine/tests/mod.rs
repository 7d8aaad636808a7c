//! Tests of single decisions.

mod laws;

use std::time::Duration;

use tokio::time::Instant;

use super::decide::POLL;
use super::*;
use crate::model::oper::Notification;

pub(super) const PATIENCE: StepLimits = StepLimits {
    slow: Duration::from_secs(120),
    appear: Duration::from_secs(120),
    install: Duration::from_secs(600),
    copy: Duration::from_secs(600),
    step: Duration::from_secs(30),
};
pub(super) const RUN: Goal = Goal::Running { ended: true, failed: true };

pub(super) fn view(configured: Configured, state: AppState) -> AppView<'static> {
    let (package, device_text) = (Package::OnDevice, "X");
    AppView { configured, state, device_text, package, busy: None, copying: None, starts_by_itself: false }
}

/// Returns the first decision for an application.
fn first(configured: Configured, state: AppState, goal: Goal) -> Decision {
    let now = Instant::now();
    decide(view(configured, state), goal, &AppRecord::new(state, now), PATIENCE, now)
}

#[test]
fn each_state_has_one_next_step() {
    use AppState::{Absent, Activated, Deployed, Running, Stopped};
    use Configured::{No, Outdated, Yes};
    for (configured, state, goal, act) in [
        (No, Absent, RUN, AppStep::Configure),
        (No, Deployed, RUN, AppStep::Configure),
        (Yes, Absent, RUN, AppStep::Install),
        (Yes, Deployed, RUN, AppStep::Activate),
        (Yes, Activated, RUN, AppStep::Start),
        (Yes, Stopped, RUN, AppStep::Start),
        (Outdated, Running, RUN, AppStep::Stop),
        (Outdated, Absent, RUN, AppStep::Remove),
        (Yes, Running, Goal::Removed, AppStep::Stop),
        (Yes, Stopped, Goal::Removed, AppStep::Deactivate),
        (Yes, Activated, Goal::Removed, AppStep::Deactivate),
        (Yes, Deployed, Goal::Removed, AppStep::Uninstall),
        (No, Deployed, Goal::Removed, AppStep::Uninstall),
        (Yes, AppState::Failed, Goal::Removed, AppStep::Uninstall),
        (Yes, Absent, Goal::Removed, AppStep::Remove),
    ] {
        assert_eq!(first(configured, state, goal), Decision::Do(act), "{configured:?} {state:?} {goal:?}");
    }
    assert_eq!(first(Yes, Running, RUN), Decision::Done);
    assert_eq!(first(No, Absent, Goal::Removed), Decision::Done);
}

#[test]
fn what_ended_or_failed_stays_so_where_the_policy_says_so() {
    let never = Goal::Running { ended: false, failed: false };
    assert_eq!(first(Configured::Yes, AppState::Stopped, never), Decision::Done);
    assert_eq!(first(Configured::Yes, AppState::Failed, never), Decision::Done);
    assert!(matches!(
        first(Configured::Yes, AppState::Failed, RUN),
        Decision::Fail { reason: "CrashLoopBackOff", .. }
    ));
}

#[test]
fn a_state_that_nobody_knows_is_left_alone_and_reported_after_a_while() {
    let now = Instant::now();
    let is_reported = |decision| matches!(decision, Decision::Fail { reason: "ContainerStatusUnknown", .. });
    for goal in [RUN, Goal::Removed] {
        let record = AppRecord::new(AppState::Unknown, now);
        let at = |seconds| {
            let now = now + Duration::from_secs(seconds);
            decide(view(Configured::Yes, AppState::Unknown), goal, &record, PATIENCE, now)
        };
        assert!(matches!(at(0), Decision::Wait { .. }));
        assert!(matches!(at(29), Decision::Wait { .. }));
        assert_eq!((is_reported(at(30)), is_reported(at(3600))), (goal == RUN, goal == RUN), "{goal:?}");
    }
}

#[test]
fn a_deleted_app_in_a_state_that_nobody_knows_is_removed_step_by_step() {
    use AppStep::{Deactivate, Stop, Uninstall};
    let begun = Instant::now();
    let mut record = AppRecord::new(AppState::Unknown, begun);
    let mut now = begun + PATIENCE.step;
    let mut tried = Vec::new();
    while tried.len() < 7 {
        match decide(view(Configured::Yes, AppState::Unknown), Goal::Removed, &record, PATIENCE, now) {
            Decision::Do(act) => {
                record.attempted(act, now, PATIENCE.limit(act));
                record.refused(act, "no".into(), RefusalKind::Temporary, now);
                tried.push(act);
            }
            Decision::Fail { poll_after, .. } => now += poll_after,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tried, [Stop, Deactivate, Uninstall, Stop, Deactivate, Uninstall, Stop]);
}

#[test]
fn a_device_that_goes_on_by_itself_is_left_the_time_for_a_step() {
    let now = Instant::now();
    for (state, act) in [(AppState::Deployed, AppStep::Activate), (AppState::Activated, AppStep::Start)] {
        let mut record = AppRecord::new(AppState::Installing, now);
        record.observe(state, now);
        let view = AppView { starts_by_itself: true, ..view(Configured::Yes, state) };
        let at = |seconds| decide(view, RUN, &record, PATIENCE, now + Duration::from_secs(seconds));
        assert!(matches!((at(0), at(29)), (Decision::Wait { .. }, Decision::Wait { .. })), "{state:?}");
        assert_eq!(at(30), Decision::Do(act));
        assert!(matches!(decide(view, Goal::Removed, &record, PATIENCE, now), Decision::Do(_)), "{state:?}");
    }
}

#[test]
fn a_step_that_the_device_takes_by_itself_is_known_from_one_that_was_asked_for() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Deployed, now);
    assert!(record.observe(AppState::Activated, now) && record.observe(AppState::Running, now));
    let mut record = AppRecord::new(AppState::Deployed, now);
    record.attempted(AppStep::Activate, now, PATIENCE.step);
    assert!(!record.observe(AppState::Activated, now));
    record.attempted(AppStep::Start, now, PATIENCE.step);
    record.refused(AppStep::Start, "it starts".into(), RefusalKind::Busy, now);
    assert!(record.observe(AppState::Running, now));
}

#[test]
fn an_install_waits_for_another_one_and_a_removal_for_an_install() {
    let now = Instant::now();
    let record = AppRecord::new(AppState::Absent, now);
    let busy =
        AppView { busy: Some(Busy { app: "other", since: now }), ..view(Configured::Yes, AppState::Absent) };
    let decision = decide(busy, RUN, &record, PATIENCE, now);
    assert_eq!(
        decision,
        Decision::Wait { state: "waiting for the install of other".into(), poll_after: POLL }
    );
    let mut asked = Vec::new();
    let mut later = now + PATIENCE.copy + POLL;
    for _ in 0..8 {
        match decide(busy, RUN, &record, PATIENCE, later) {
            Decision::Fail { reason: "ErrImagePull", message, poll_after } if message.contains("other") => {
                asked.push(poll_after.as_secs());
                later += poll_after;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, [5, 5, 10, 21, 42, 84, 169, 300], "somebody else's may never end");
    let installing = first(Configured::Yes, AppState::Installing, Goal::Removed);
    assert!(matches!(installing, Decision::Wait { .. }));
    let mut record = AppRecord::new(AppState::Installing, now);
    record.observe(AppState::Installing, now);
    let later = now + PATIENCE.install;
    let decision =
        decide(view(Configured::Yes, AppState::Installing), Goal::Removed, &record, PATIENCE, later);
    assert_eq!(decision, Decision::Do(AppStep::Uninstall));
}

#[test]
fn the_configuration_stays_while_an_install_that_was_accepted_may_still_come() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    record.attempted(AppStep::Install, now, PATIENCE.limit(AppStep::Install));
    let at = |later| {
        decide(view(Configured::Yes, AppState::Absent), Goal::Removed, &record, PATIENCE, now + later)
    };
    assert!(matches!(at(POLL), Decision::Wait { .. }));
    assert_eq!(at(PATIENCE.step), Decision::Do(AppStep::Remove));
}

#[test]
fn a_refused_step_is_reported_with_its_reason_and_tried_after_pauses_that_double() {
    let (mut now, mut record) = (Instant::now(), AppRecord::new(AppState::Absent, Instant::now()));
    let mut pauses = Vec::new();
    for _ in 0..7 {
        assert_eq!(
            decide(view(Configured::Yes, AppState::Absent), RUN, &record, PATIENCE, now),
            Decision::Do(AppStep::Install)
        );
        record.attempted(AppStep::Install, now, PATIENCE.limit(AppStep::Install));
        record.refused(AppStep::Install, "no room".into(), RefusalKind::Temporary, now);
        match decide(view(Configured::Yes, AppState::Absent), RUN, &record, PATIENCE, now) {
            Decision::Fail { reason: "ErrImagePull", message, poll_after }
                if message == "installing: no room" =>
            {
                pauses.push(poll_after.as_secs());
                now += poll_after;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128]);
}

#[test]
fn a_refused_step_is_no_failure_when_the_device_went_on_by_itself() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Deployed, now);
    record.attempted(AppStep::Activate, now, PATIENCE.limit(AppStep::Activate));
    record.refused(AppStep::Activate, "it is activated already".into(), RefusalKind::Busy, now);
    record.observe(AppState::Activated, now + POLL);
    let decision = decide(view(Configured::Yes, AppState::Activated), RUN, &record, PATIENCE, now + POLL);
    assert_eq!(decision, Decision::Do(AppStep::Start));
}

#[test]
fn a_device_that_is_busy_is_asked_again_soon_and_reported_when_it_stays_so() {
    let (mut now, mut record) = (Instant::now(), AppRecord::new(AppState::Deployed, Instant::now()));
    let mut waits = Vec::new();
    for _ in 0..7 {
        record.attempted(AppStep::Activate, now, PATIENCE.limit(AppStep::Activate));
        record.refused(AppStep::Activate, "in progress".into(), RefusalKind::Busy, now);
        let (reported, poll_after) =
            match decide(view(Configured::Yes, AppState::Deployed), RUN, &record, PATIENCE, now) {
                Decision::Wait { poll_after, .. } => (false, poll_after),
                Decision::Fail { reason: "CreateContainerError", poll_after, .. } => (true, poll_after),
                other => panic!("{other:?}"),
            };
        waits.push((reported, poll_after.as_millis()));
        now += poll_after;
    }
    let expected = [300, 600, 1200, 2400, 4800].map(|wait| (false, wait));
    assert_eq!(waits, [&expected[..], &[(true, 9600), (true, 19_200)]].concat());
}

#[test]
fn an_install_of_which_nothing_comes_is_reported_after_its_limit_and_tried_again_after_a_pause() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    record.attempted(AppStep::Install, now, PATIENCE.appear);
    let at = |record: &mut AppRecord, now| {
        record.observe(AppState::Absent, now);
        decide(view(Configured::Yes, AppState::Absent), RUN, record, PATIENCE, now)
    };
    assert!(matches!(at(&mut record, now + POLL), Decision::Wait { .. }));
    assert!(record.installs(now + POLL));
    let later = now + PATIENCE.appear;
    let decision = at(&mut record, later);
    assert!(!record.installs(later), "others may be installed meanwhile");
    let Decision::Fail { reason: "ErrImagePull", message, poll_after } = decision else {
        panic!("{decision:?}")
    };
    assert!(message.contains("no application appeared within 120 s"), "{message}");
    assert_eq!(at(&mut record, later + poll_after), Decision::Do(AppStep::Install));
}

#[test]
fn a_failure_that_the_device_reports_is_known_from_those_that_it_reported_before() {
    let now = Instant::now();
    let reported = |timestamp: &str, app_id: &str| Notification {
        timestamp: timestamp.into(),
        app_id: app_id.into(),
        status: "im-app-fail".into(),
        message: "no room".into(),
    };
    let mut record = AppRecord::new(AppState::Absent, now);
    let old = [reported("1", "a"), reported("2", "b")];
    record.record_earlier_failures(&old, "a");
    record.attempted(AppStep::Install, now, PATIENCE.install);
    record.record_failures(&old, "a", now);
    assert_eq!(record.problem(), None);
    record.record_failures(&[reported("1", "a"), reported("3", "a")], "a", now);
    assert_eq!(record.problem(), Some("no room"));
}

#[test]
fn an_install_that_the_device_gives_up_is_reported_and_another_one_that_was_asked_to_go_is_not() {
    let now = Instant::now();
    for (asked_to_stop, expected) in [(false, Some("the device aborted the install")), (true, None)] {
        let mut record = AppRecord::new(AppState::Absent, now);
        record.attempted(AppStep::Install, now, PATIENCE.install);
        record.observe(AppState::Installing, now + POLL);
        if asked_to_stop {
            record.attempted(AppStep::Uninstall, now + POLL, PATIENCE.step);
        }
        record.observe(AppState::Absent, now + POLL * 2);
        assert_eq!(record.problem(), expected);
    }
}

#[test]
fn what_ends_again_and_again_is_left_alone_for_pauses_that_double_until_it_runs_steadily() {
    let (mut now, mut record) = (Instant::now(), AppRecord::new(AppState::Running, Instant::now()));
    let mut pauses = Vec::new();
    for runs in [1, 1, 1, 600] {
        now += Duration::from_secs(runs);
        record.observe(AppState::Stopped, now);
        match decide(view(Configured::Yes, AppState::Stopped), RUN, &record, PATIENCE, now) {
            Decision::Fail { reason: "CrashLoopBackOff", poll_after, .. } => {
                pauses.push(poll_after.as_secs());
            }
            other => panic!("{other:?}"),
        }
        now += Duration::from_secs(pauses[pauses.len() - 1]);
        assert_eq!(
            decide(view(Configured::Yes, AppState::Stopped), RUN, &record, PATIENCE, now),
            Decision::Do(AppStep::Start)
        );
        record.observe(AppState::Running, now);
    }
    assert_eq!(pauses, [2, 4, 8, 2]);
}

#[test]
fn a_step_of_which_nobody_knows_whether_the_device_was_asked_is_repeated_soon() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    record.attempted(AppStep::Install, now, PATIENCE.install);
    record.uncertain(AppStep::Install);
    let at = |record: &mut AppRecord, later| {
        record.observe(AppState::Absent, now + later);
        decide(view(Configured::Yes, AppState::Absent), RUN, record, PATIENCE, now + later)
    };
    assert!(matches!(at(&mut record, Duration::from_secs(4)), Decision::Wait { .. }));
    assert!(matches!(at(&mut record, Duration::from_secs(5)), Decision::Fail { .. }));
    assert_eq!(at(&mut record, Duration::from_secs(7)), Decision::Do(AppStep::Install));
}

#[test]
fn an_install_whose_answer_is_lost_late_is_not_repeated_before_its_effect_could_show() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    record.attempted(AppStep::Install, now, PATIENCE.install);
    record.uncertain(AppStep::Install);
    let lost = now + Duration::from_secs(30);
    record.lost(AppStep::Install, lost);
    let at = |record: &mut AppRecord, later| {
        record.observe(AppState::Absent, lost + later);
        decide(view(Configured::Yes, AppState::Absent), RUN, record, PATIENCE, lost + later)
    };
    assert!(matches!(at(&mut record, Duration::from_secs(4)), Decision::Wait { .. }));
    assert!(matches!(at(&mut record, Duration::from_secs(5)), Decision::Fail { .. }));
    assert_eq!(at(&mut record, Duration::from_secs(7)), Decision::Do(AppStep::Install));
}

#[test]
fn a_slow_install_is_reported_and_goes_on_until_its_pod_is_deleted() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    record.attempted(AppStep::Install, now, PATIENCE.limit(AppStep::Install));
    record.observe(AppState::Installing, now);
    let at = |goal, seconds| {
        let now = now + Duration::from_secs(seconds);
        decide(view(Configured::Yes, AppState::Installing), goal, &record, PATIENCE, now)
    };
    let reported = |seconds| match at(RUN, seconds) {
        Decision::Wait { .. } => "",
        Decision::Fail { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let reports = [0, 119, 120, 599, 600, 3600].map(reported);
    assert_eq!(reports, ["", "", "InstallSlow", "InstallSlow", "ErrImagePull", "ErrImagePull"]);
    assert!(matches!(at(Goal::Removed, 119), Decision::Wait { .. }));
    assert_eq!(at(Goal::Removed, 120), Decision::Do(AppStep::Uninstall));
}

#[test]
fn an_install_from_a_url_that_hangs_is_ended_and_reported_and_the_package_comes_another_way() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Absent, now);
    let of = |state| AppView { package: Package::AtUrl, ..view(Configured::Yes, state) };
    record.attempted(AppStep::Install, now, PATIENCE.install);
    record.observe(AppState::Installing, now);
    let now = now + PATIENCE.install;
    let ended = decide(of(AppState::Installing), RUN, &record, PATIENCE, now);
    assert_eq!(ended, Decision::Do(AppStep::Uninstall));
    record.attempted(AppStep::Uninstall, now, PATIENCE.step);
    record.observe(AppState::Absent, now);
    assert!(record.problem().is_some_and(|problem| problem.contains("its time limit")));
    let next = decide(of(AppState::Absent), RUN, &record, PATIENCE, now);
    assert_eq!(next, Decision::Do(AppStep::Divert));
}

#[test]
fn a_step_that_is_repeated_is_looked_after_seldom() {
    let now = Instant::now();
    let mut record = AppRecord::new(AppState::Deployed, now);
    let at = |record: &AppRecord, now| {
        decide(view(Configured::Yes, AppState::Deployed), RUN, record, PATIENCE, now)
    };
    record.attempted(AppStep::Activate, now, PATIENCE.step);
    assert!(matches!(at(&record, now), Decision::Wait { poll_after: POLL, .. }));
    let later = now + PATIENCE.step;
    assert_eq!(at(&record, later), Decision::Do(AppStep::Activate));
    record.attempted(AppStep::Activate, later, PATIENCE.step);
    let Decision::Fail { reason: "CreateContainerError", poll_after, .. } = at(&record, later) else {
        panic!("it is told")
    };
    assert_eq!(poll_after, Duration::from_secs(5));
    let end = later + PATIENCE.step - Duration::from_secs(1);
    assert!(
        matches!(at(&record, end), Decision::Fail { poll_after, .. } if poll_after == Duration::from_secs(1))
    );
}
