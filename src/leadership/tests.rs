//! The rules of the election, one by one.

use super::election::Outcome;
use super::lease::{Draft, Sighting};
use super::*;
use clock::BootTime;
use election::Step;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

fn at(seconds: f64) -> BootTime {
    BootTime::default() + Duration::from_secs_f64(seconds)
}

/// The lease that `holder` has, as renewed for the `version`th time.
fn lease(holder: &str, version: u32) -> Sighting {
    Sighting {
        version: version.to_string(),
        holder: holder.to_owned(),
        duration: Some(TIMING.lease_duration),
        transitions: 4,
    }
}

fn candidate() -> Election {
    Election::new("us".into(), TIMING, 7)
}

/// A candidate that has taken the lease at 100 s, as version 1.
fn leader() -> Election {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("", 0)));
    election.wrote(at(100.0), at(100.1), Outcome::Written(lease("us", 1)));
    assert_eq!(election.deadline(), Some(at(110.0)));
    election
}

fn written(step: Step) -> Draft {
    match step {
        Step::Write(draft) => draft,
        other => panic!("{other:?} where something was to be written"),
    }
}

fn until(step: &Step) -> f64 {
    match step {
        Step::Wait(until) => (*until - BootTime::default()).as_secs_f64(),
        other => panic!("{other:?} where there was nothing to do"),
    }
}

#[test]
fn who_comes_first_leads_at_once() {
    let mut election = candidate();
    assert!(matches!(election.step(at(100.0)), Step::Look));
    election.saw(at(100.0), None);
    let draft = written(election.step(at(100.0)));
    assert_eq!((draft.version, draft.transitions, draft.duration_seconds), (None, Some(0), 15));
}

#[test]
fn a_lease_that_was_given_up_is_taken_at_once_and_that_is_one_more_transition() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("", 7)));
    let draft = written(election.step(at(100.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("7"), Some(5)));
    assert_eq!(draft.holder, "us");
}

#[test]
fn a_lease_is_waited_out_from_when_it_was_seen() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("them", 7)));
    election.saw(at(114.0), Some(lease("them", 7)));
    assert!((until(&election.step(at(114.9))) - 115.0).abs() < 1e-9);
    assert_eq!(written(election.step(at(115.0))).version.as_deref(), Some("7"));
}

#[test]
fn each_renewal_that_is_seen_starts_the_time_anew() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("them", 7)));
    election.saw(at(114.0), Some(lease("them", 8)));
    election.saw(at(115.0), Some(lease("them", 8)));
    assert!(!matches!(election.step(at(128.9)), Step::Write(_)));
    assert_eq!(written(election.step(at(129.0))).version.as_deref(), Some("8"));
}

#[test]
fn a_lease_that_does_not_say_how_long_it_lasts_lasts_as_long_as_ours() {
    let mut election = candidate();
    election.saw(at(100.0), Some(Sighting { duration: None, ..lease("a tool", 7) }));
    assert!(!matches!(election.step(at(114.9)), Step::Write(_)));
    written(election.step(at(115.0)));
    let mut election = candidate();
    election.saw(at(100.0), Some(Sighting { duration: Some(Duration::from_secs(3)), ..lease("a tool", 7) }));
    written(election.step(at(103.0)));
}

#[test]
fn a_lease_that_vanished_is_waited_out_if_it_was_held() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("them", 7)));
    election.saw(at(105.0), None);
    election.saw(at(106.0), None);
    assert!(!matches!(election.step(at(119.9)), Step::Write(_)));
    assert_eq!(written(election.step(at(120.0))).version, None);

    let mut election = candidate();
    election.saw(at(100.0), Some(lease("", 7)));
    election.saw(at(100.5), None);
    written(election.step(at(100.5)));
}

#[test]
fn a_standby_that_hears_nothing_looks_by_itself_and_one_without_a_watch_does_so_each_retry_period() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("them", 7)));
    assert!((until(&election.step(at(100.0))) - 104.0).abs() < 1e-9);
    election.is_deaf(at(100.0));
    let look = until(&election.step(at(100.0)));
    assert!((101.6..=102.0).contains(&look), "{look}");
    assert!(matches!(election.step(at(102.0)), Step::Look));
    election.saw_nothing(at(102.0));
    let look = until(&election.step(at(102.0)));
    assert!((103.6..=104.0).contains(&look), "{look}");
}

#[test]
fn a_term_is_counted_from_when_the_renewal_was_sent() {
    let mut election = leader();
    let renewal = until(&election.step(at(100.1)));
    assert!((101.6..=102.0).contains(&renewal), "{renewal}");
    let draft = written(election.step(at(102.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("1"), None));
    election.wrote(at(102.0), at(106.0), Outcome::Written(lease("us", 2)));
    assert_eq!(election.deadline(), Some(at(112.0)));
}

#[test]
fn a_leader_that_cannot_renew_ends_at_its_deadline_and_no_late_answer_brings_it_back() {
    let mut election = leader();
    election.wrote(at(102.0), at(107.0), Outcome::Failed);
    assert!(matches!(election.step(at(109.5)), Step::Look), "the write may have been done");
    election.saw_nothing(at(109.5));
    assert!((until(&election.step(at(109.5))) - 110.0).abs() < 1e-9);
    assert!(matches!(election.step(at(110.0)), Step::StandDown(Loss::Expired)));
    election.wrote(at(109.9), at(110.1), Outcome::Written(lease("us", 2)));
    assert_eq!(election.deadline(), None);
    assert!(matches!(election.step(at(110.1)), Step::StandDown(Loss::Expired)));

    let mut paused = leader();
    paused.wrote(at(109.9), at(110.1), Outcome::Written(lease("us", 2)));
    assert!(
        matches!(paused.step(at(110.1)), Step::StandDown(Loss::Expired)),
        "nobody looked at the deadline"
    );
}

#[test]
fn a_leader_whose_lease_somebody_else_has_ends_at_once() {
    let mut election = leader();
    election.wrote(at(102.0), at(102.1), Outcome::Conflict);
    assert!(matches!(election.step(at(102.1)), Step::Look));
    election.saw(at(102.2), Some(lease("them", 3)));
    let Step::StandDown(loss) = election.step(at(102.2)) else { panic!("it goes on") };
    assert_eq!(loss.to_string(), "the lease was taken by them");

    let mut cleared = leader();
    cleared.saw(at(102.2), Some(lease("", 3)));
    let Step::StandDown(loss) = cleared.step(at(102.2)) else { panic!("it goes on") };
    assert_eq!(loss.to_string(), "the lease was taken by nobody: its holder was removed");
}

#[test]
fn a_renewal_whose_answer_was_lost_is_made_good() {
    let mut election = leader();
    election.wrote(at(102.0), at(105.0), Outcome::Failed);
    election.saw(at(107.0), Some(lease("us", 2)));
    let draft = written(election.step(at(107.0)));
    assert_eq!((draft.version.as_deref(), draft.transitions), (Some("2"), None));
    assert_eq!(election.deadline(), Some(at(110.0)), "what was seen is no renewal");
}

#[test]
fn a_lease_that_was_taken_without_knowing_it_is_renewed_first() {
    let mut election = candidate();
    election.saw(at(100.0), Some(lease("", 0)));
    election.wrote(at(100.0), at(105.0), Outcome::Failed);
    election.saw(at(107.0), Some(lease("us", 1)));
    assert_eq!(election.deadline(), None);
    assert_eq!(written(election.step(at(107.0))).transitions, None);

    let mut slow = candidate();
    slow.saw(at(100.0), Some(lease("", 0)));
    slow.wrote(at(100.0), at(111.0), Outcome::Written(lease("us", 1)));
    assert_eq!(slow.deadline(), None, "the term was over before it was known");
    written(slow.step(at(111.0)));
}

#[test]
fn a_leader_whose_lease_was_deleted_makes_it_anew() {
    let mut election = leader();
    election.wrote(at(102.0), at(102.1), Outcome::Missing);
    assert_eq!(written(election.step(at(102.1))).version, None);
    assert_eq!(election.deadline(), Some(at(110.0)));
}

#[test]
fn who_loses_the_race_for_the_lease_stands_by() {
    let mut election = candidate();
    election.saw(at(100.0), None);
    election.wrote(at(100.0), at(100.1), Outcome::Conflict);
    assert!(matches!(election.step(at(100.1)), Step::Look));
    election.saw(at(100.2), Some(lease("them", 1)));
    assert!(until(&election.step(at(100.2))) > 101.0);
    assert_eq!(election.holder(), Some("them"));
    assert_eq!(election.release(), None);
}

#[test]
fn who_meets_others_again_and_again_takes_its_time() {
    let mut election = candidate();
    election.saw(at(100.0), None);
    election.wrote(at(100.0), at(100.1), Outcome::Conflict);
    assert!(matches!(election.step(at(100.1)), Step::Look));
    election.saw(at(100.2), None);
    written(election.step(at(100.2)));
    election.wrote(at(100.2), at(100.3), Outcome::Conflict);
    let look = until(&election.step(at(100.3)));
    assert!((101.9..=102.3).contains(&look), "{look}");
    election.saw(at(102.3), Some(lease("them", 1)));
    written(election.step(at(117.3)));
    election.wrote(at(117.3), at(117.4), Outcome::Conflict);
    assert!(matches!(election.step(at(117.4)), Step::Look), "that is another race");
}

#[test]
fn a_lease_is_given_up_by_its_holder_alone() {
    let draft = leader().release().unwrap();
    assert_eq!((&*draft.holder, draft.duration_seconds, draft.transitions), ("", 1, None));
    assert_eq!(draft.version.as_deref(), Some("1"));
    assert_eq!(candidate().release(), None);
}

#[test]
fn a_duration_that_is_no_whole_number_of_seconds_is_rounded_up() {
    let timing = Timing { lease_duration: Duration::from_millis(1500), ..TIMING };
    let mut election = Election::new("us".into(), timing, 7);
    election.saw(at(100.0), None);
    assert_eq!(written(election.step(at(100.0))).duration_seconds, 2);
}

#[tokio::test]
async fn an_election_that_ends_by_itself_is_a_loss_and_ends_the_term() {
    let status = watch::Sender::new(Status::new(Role::Leader));
    let term = Term::not_begun();
    term.lasts_until(BootTime::now() + Duration::from_secs(3600));
    let campaign = tokio::spawn(async { panic!("as ordered") });
    let mut leadership = Leadership {
        term: term.clone(),
        status: status.clone(),
        stop: CancellationToken::new(),
        campaign: Some(AbortOnDropHandle::new(campaign)),
    };
    assert_eq!(leadership.lost().await, Loss::Abandoned);
    assert!(!term.holds());
    assert_eq!(status.borrow().role, Role::Ended(Some(Loss::Abandoned)));
    assert_eq!(status.borrow().losses, 1);
    leadership.release().await;
}
