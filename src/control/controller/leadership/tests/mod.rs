//! Tests of the rules of the elector.

mod simulation;
mod world;

use super::elector::ElectorAction;
use super::lease::LeaseOutcome;
use super::lease::{LeaseUpdate, ObservedLease};
use super::*;
use staffetta_handler::BootTime;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

fn at(seconds: f64) -> BootTime {
    BootTime::default() + Duration::from_secs_f64(seconds)
}

/// Returns a lease of `holder` with this resourceVersion.
fn lease(holder: &str, version: u32) -> ObservedLease {
    ObservedLease {
        version: version.to_string(),
        holder: holder.to_owned(),
        duration: Some(TIMING.lease_duration),
        renewed: true,
        transitions: 4,
    }
}

/// Returns a lease that was created and not used since.
fn created(holder: &str, version: u32) -> ObservedLease {
    ObservedLease { renewed: false, transitions: 0, ..lease(holder, version) }
}

fn candidate() -> Elector {
    Elector::new("us".into(), None, TIMING)
}

/// Returns a leader that took the lease at 100 s, as version 1.
fn leader() -> Elector {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("", 0)));
    elector.write_completed(at(100.0), at(100.1), LeaseOutcome::Written(lease("us", 1)));
    assert_eq!(elector.deadline(), Some(at(110.0)));
    elector
}

fn written(step: ElectorAction) -> LeaseUpdate {
    match step {
        ElectorAction::Write(draft) => draft,
        other => panic!("{other:?} instead of a write"),
    }
}

fn until(step: &ElectorAction) -> f64 {
    match step {
        ElectorAction::Wait(until) => (*until - BootTime::default()).as_secs_f64(),
        other => panic!("{other:?} instead of a wait"),
    }
}

#[test]
fn a_lease_that_does_not_exist_is_created_for_everybody_and_taken_after_its_duration() {
    let mut elector = candidate();
    assert!(matches!(elector.next_action(at(100.0)), ElectorAction::Read));
    elector.observe(at(100.0), None);
    let draft = written(elector.next_action(at(100.0)));
    assert_eq!((draft.version, draft.transitions, draft.duration_seconds), (None, Some(0), 15));
    assert_eq!((&*draft.holder, draft.renews), ("", false));
    elector.write_completed(at(100.0), at(100.1), LeaseOutcome::Written(created("", 1)));
    assert_eq!((elector.deadline(), elector.holder(), elector.release()), (None, None, None));
    assert!(matches!(elector.next_action(at(100.1)), ElectorAction::Read), "it watches from there on");
    let mut other = candidate();
    for elector in [&mut elector, &mut other] {
        elector.observe(at(100.2), Some(created("", 1)));
    }
    assert!(!matches!(elector.next_action(at(115.0)), ElectorAction::Write(_)));
    let draft = written(elector.next_action(at(115.1)));
    assert_eq!((draft.version.as_deref(), draft.transitions, draft.renews), (Some("1"), Some(0), true));
    written(other.next_action(at(115.2)));
}

#[test]
fn a_released_lease_is_taken_at_once_with_one_more_transition() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("", 7)));
    let draft = written(elector.next_action(at(100.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("7"), Some(5)));
    assert_eq!(draft.holder, "us");
}

#[test]
fn a_held_lease_expires_from_the_time_at_which_it_was_observed() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("them", 7)));
    elector.observe(at(114.0), Some(lease("them", 7)));
    assert!((until(&elector.next_action(at(114.9))) - 115.0).abs() < 1e-9);
    assert_eq!(written(elector.next_action(at(115.0))).version.as_deref(), Some("7"));
}

#[test]
fn the_lease_of_ones_own_previous_term_is_taken_at_once_and_that_of_another_process_is_not() {
    let mut elector = Elector::new("us-2".into(), Some("us".into()), TIMING);
    elector.observe(at(100.0), Some(lease("us", 7)));
    let draft = written(elector.next_action(at(100.0)));
    assert_eq!((draft.version.as_deref(), &*draft.holder, draft.transitions), (Some("7"), "us-2", Some(5)));
    elector.write_completed(at(100.0), at(100.1), LeaseOutcome::Conflict);
    elector.observe(at(100.2), Some(lease("them", 8)));
    assert!(!matches!(elector.next_action(at(115.1)), ElectorAction::Write(_)), "a standby was faster");
    written(elector.next_action(at(115.2)));
}

#[test]
fn each_observed_renewal_restarts_the_expiry() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("them", 7)));
    elector.observe(at(114.0), Some(lease("them", 8)));
    elector.observe(at(115.0), Some(lease("them", 8)));
    assert!(!matches!(elector.next_action(at(128.9)), ElectorAction::Write(_)));
    assert_eq!(written(elector.next_action(at(129.0))).version.as_deref(), Some("8"));
}

#[test]
fn a_lease_without_a_duration_has_the_configured_one() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(ObservedLease { duration: None, ..lease("a tool", 7) }));
    assert!(!matches!(elector.next_action(at(114.9)), ElectorAction::Write(_)));
    written(elector.next_action(at(115.0)));
    let mut elector = candidate();
    elector.observe(
        at(100.0),
        Some(ObservedLease { duration: Some(Duration::from_secs(3)), ..lease("a tool", 7) }),
    );
    written(elector.next_action(at(103.0)));
}

#[test]
fn a_deleted_lease_is_created_at_once_and_taken_by_its_holder_or_after_its_duration() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("them", 7)));
    elector.observe(at(105.0), None);
    let draft = written(elector.next_action(at(105.0)));
    assert_eq!((draft.version, &*draft.holder), (None, ""));
    elector.observe(at(106.0), Some(created("", 8)));
    assert!(!matches!(elector.next_action(at(120.9)), ElectorAction::Write(_)));
    assert_eq!(written(elector.next_action(at(121.0))).version.as_deref(), Some("8"));

    let mut holder = leader();
    holder.write_completed(at(102.0), at(102.1), LeaseOutcome::Conflict);
    holder.observe(at(102.2), Some(created("", 8)));
    let draft = written(holder.next_action(at(102.2)));
    assert_eq!((draft.version.as_deref(), &*draft.holder, draft.renews), (Some("8"), "us", false));
    holder.write_completed(at(102.2), at(102.3), LeaseOutcome::Written(created("us", 9)));
    assert_eq!(holder.deadline(), Some(at(112.2)));
    assert!(written(holder.next_action(at(104.2))).renews, "its term went on with this lease");
}

#[test]
fn a_lease_that_this_process_created_too_late_is_taken_as_that_of_another_one() {
    for identity in ["us", "us-2"] {
        let mut elector = Elector::new(identity.into(), Some("us".into()), TIMING);
        elector.observe(at(100.0), Some(created("us", 7)));
        assert!(!matches!(elector.next_action(at(114.9)), ElectorAction::Write(_)));
        written(elector.next_action(at(115.0)));
    }
}

#[test]
fn a_standby_without_changes_reads_the_lease_and_one_without_a_watch_does_so_each_retry_period() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("them", 7)));
    assert!((until(&elector.next_action(at(100.0))) - 104.0).abs() < 1e-9);
    elector.watch_ended(at(100.0));
    let look = until(&elector.next_action(at(100.0)));
    assert!((101.6..=102.0).contains(&look), "{look}");
    assert!(matches!(elector.next_action(at(102.0)), ElectorAction::Read));
    elector.read_failed(at(102.0));
    let look = until(&elector.next_action(at(102.0)));
    assert!((103.6..=104.0).contains(&look), "{look}");
}

#[test]
fn a_term_is_measured_from_the_sending_of_the_renewal() {
    let mut elector = leader();
    let renewal = until(&elector.next_action(at(100.1)));
    assert!((101.6..=102.0).contains(&renewal), "{renewal}");
    let draft = written(elector.next_action(at(102.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("1"), None));
    elector.write_completed(at(102.0), at(106.0), LeaseOutcome::Written(lease("us", 2)));
    assert_eq!(elector.deadline(), Some(at(112.0)));
}

#[test]
fn a_leader_that_cannot_renew_stops_at_its_deadline_and_a_late_response_does_not_revive_it() {
    let mut elector = leader();
    elector.write_completed(at(102.0), at(107.0), LeaseOutcome::Failed);
    assert!(matches!(elector.next_action(at(109.5)), ElectorAction::Read), "the write may have succeeded");
    elector.read_failed(at(109.5));
    assert!((until(&elector.next_action(at(109.5))) - 110.0).abs() < 1e-9);
    assert!(matches!(elector.next_action(at(110.0)), ElectorAction::Stop(LossReason::Expired)));
    elector.write_completed(at(109.9), at(110.1), LeaseOutcome::Written(lease("us", 2)));
    assert_eq!(elector.deadline(), None);
    assert!(matches!(elector.next_action(at(110.1)), ElectorAction::Stop(LossReason::Expired)));

    let mut paused = leader();
    paused.write_completed(at(109.9), at(110.1), LeaseOutcome::Written(lease("us", 2)));
    assert!(
        matches!(paused.next_action(at(110.1)), ElectorAction::Stop(LossReason::Expired)),
        "the deadline passed while the process was stopped"
    );
}

#[test]
fn a_leader_whose_lease_was_taken_stops_at_once() {
    let mut elector = leader();
    elector.write_completed(at(102.0), at(102.1), LeaseOutcome::Conflict);
    assert!(matches!(elector.next_action(at(102.1)), ElectorAction::Read));
    elector.observe(at(102.2), Some(lease("them", 3)));
    let ElectorAction::Stop(loss) = elector.next_action(at(102.2)) else { panic!("it does not stop") };
    assert_eq!(loss.to_string(), "the lease was taken by them");

    let mut cleared = leader();
    cleared.observe(at(102.2), Some(lease("", 3)));
    let ElectorAction::Stop(loss) = cleared.next_action(at(102.2)) else { panic!("it does not stop") };
    assert_eq!(loss.to_string(), "the holder was removed from the lease");
}

#[test]
fn a_renewal_whose_response_was_lost_is_repeated() {
    let mut elector = leader();
    elector.write_completed(at(102.0), at(105.0), LeaseOutcome::Failed);
    elector.observe(at(107.0), Some(lease("us", 2)));
    let draft = written(elector.next_action(at(107.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("2"), None));
    assert_eq!(elector.deadline(), Some(at(110.0)), "an observation is no renewal");
}

#[test]
fn a_lease_that_was_taken_by_a_write_with_a_lost_response_is_renewed_first() {
    let mut elector = candidate();
    elector.observe(at(100.0), Some(lease("", 0)));
    elector.write_completed(at(100.0), at(105.0), LeaseOutcome::Failed);
    elector.observe(at(107.0), Some(lease("us", 1)));
    assert_eq!(elector.deadline(), None);
    assert_eq!(written(elector.next_action(at(107.0))).transitions, None);

    let mut slow = candidate();
    slow.observe(at(100.0), Some(lease("", 0)));
    slow.write_completed(at(100.0), at(111.0), LeaseOutcome::Written(lease("us", 1)));
    assert_eq!(slow.deadline(), None, "the term ended before the response arrived");
    written(slow.next_action(at(111.0)));
}

#[test]
fn a_leader_whose_lease_was_deleted_creates_it_again() {
    let mut elector = leader();
    elector.write_completed(at(102.0), at(102.1), LeaseOutcome::Conflict);
    assert!(matches!(elector.next_action(at(102.1)), ElectorAction::Read));
    elector.observe(at(102.2), None);
    let draft = written(elector.next_action(at(102.2)));
    assert_eq!((draft.version, &*draft.holder, draft.renews), (None, "us", false));
    assert_eq!(elector.deadline(), Some(at(110.0)));
}

#[test]
fn a_candidate_that_loses_the_race_becomes_a_standby() {
    let mut elector = candidate();
    elector.observe(at(100.0), None);
    elector.write_completed(at(100.0), at(100.1), LeaseOutcome::Conflict);
    assert!(matches!(elector.next_action(at(100.1)), ElectorAction::Read));
    elector.observe(at(100.2), Some(lease("them", 1)));
    assert!(until(&elector.next_action(at(100.2))) > 101.0);
    assert_eq!(elector.holder(), Some("them"));
    assert_eq!(elector.release(), None);
}

#[test]
fn a_lease_that_is_left_from_this_process_has_no_other_holder() {
    let mut elector = Elector::new("us-2".into(), Some("us".into()), TIMING);
    let expected = [("us", None), ("us-2", None), ("", None), ("them", Some("them"))];
    for (version, (holder, expected)) in (1..).zip(expected) {
        elector.observe(at(100.0), Some(lease(holder, version)));
        assert_eq!(elector.holder(), expected);
    }
}

#[test]
fn a_candidate_with_repeated_conflicts_slows_down() {
    let mut elector = candidate();
    elector.observe(at(100.0), None);
    elector.write_completed(at(100.0), at(100.1), LeaseOutcome::Conflict);
    assert!(matches!(elector.next_action(at(100.1)), ElectorAction::Read));
    elector.observe(at(100.2), None);
    written(elector.next_action(at(100.2)));
    elector.write_completed(at(100.2), at(100.3), LeaseOutcome::Conflict);
    let look = until(&elector.next_action(at(100.3)));
    assert!((101.9..=102.3).contains(&look), "{look}");
    elector.observe(at(102.3), Some(lease("them", 1)));
    written(elector.next_action(at(117.3)));
    elector.write_completed(at(117.3), at(117.4), LeaseOutcome::Conflict);
    assert!(matches!(elector.next_action(at(117.4)), ElectorAction::Read), "this is another race");
}

#[test]
fn only_the_holder_releases_a_lease() {
    let draft = leader().release().unwrap();
    assert_eq!((&*draft.holder, draft.duration_seconds, draft.transitions), ("", 1, None));
    assert_eq!(draft.version.as_deref(), Some("1"));
    assert_eq!(candidate().release(), None);
}

#[test]
fn a_fractional_duration_is_rounded_up_to_seconds() {
    let timing = Timing { lease_duration: Duration::from_millis(1500), ..TIMING };
    let mut elector = Elector::new("us".into(), None, timing);
    elector.observe(at(100.0), None);
    assert_eq!(written(elector.next_action(at(100.0))).duration_seconds, 2);
}

#[tokio::test]
async fn an_election_loop_that_panics_is_a_loss_and_ends_the_term() {
    let status = watch::Sender::new(ElectionStatus::new(Role::Leader));
    let term = Term::pending();
    term.extend(BootTime::now() + Duration::from_secs(3600));
    let task = tokio::spawn(async { panic!("requested by the test") });
    let mut handle = ElectionHandle {
        term: term.clone(),
        status: status.clone(),
        stop: CancellationToken::new(),
        task: Some(AbortOnDropHandle::new(task)),
    };
    assert_eq!(handle.lost().await, LossReason::LoopEnded);
    assert!(!term.is_active());
    assert_eq!(status.borrow().role, Role::Ended(Some(LossReason::LoopEnded)));
    assert_eq!(status.borrow().losses, 1);
    handle.release().await;
}
