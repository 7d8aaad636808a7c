//! Tests of the election of a Lease's holder.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::vnode::lease::VersionHistory;

const TIMING: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(40),
    renewal: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// A version from before the Lease duration.
const PAST: Option<u64> = Some(0);

/// The creation of a Lease that was never seen.
const CREATE: Option<LeaseWrite> = Some(LeaseWrite::Create { since: PAST });

fn at(seconds: u64) -> BootTime {
    BootTime::default() + Duration::from_secs(seconds)
}

fn lease(version: u64, holder: &str) -> SeenLease {
    SeenLease::held(version, holder)
}

/// Returns a Lease that was created and not used since.
fn created(version: u64, holder: &str) -> SeenLease {
    SeenLease { renewed: false, ..lease(version, holder) }
}

#[expect(clippy::unnecessary_wraps, reason = "it is the next write of an election")]
/// Returns the creation of a Lease whose deletion with this version was seen.
fn create_after(version: u64) -> Option<LeaseWrite> {
    Some(LeaseWrite::Create { since: Some(version) })
}

fn election() -> LeaseElection {
    LeaseElection::new("ours", TIMING)
}

/// Takes a Lease at this time, and returns the election of its holder.
fn holder(now: BootTime) -> LeaseElection {
    let mut election = election();
    assert_eq!(election.next(true, Duration::ZERO, PAST, now), CREATE);
    election.begin(now);
    election.finish(&WriteResult::First(lease(1, "ours")), now);
    election
}

#[test]
fn a_holder_renews_in_time_and_acts_until_three_quarters_of_the_duration_after_its_last_write() {
    let mut election = holder(at(100));
    assert!(election.may_act(at(129)) && !election.may_act(at(130)));
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(109)), None);
    let renewal = LeaseWrite::Replace { seen: lease(1, "ours") };
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(110)), Some(renewal));
    election.begin(at(110));
    election.finish(&WriteResult::Written(lease(2, "ours")), at(114));
    assert!(election.may_act(at(139)) && !election.may_act(at(140)), "it counts from before the request");
}

#[test]
fn a_write_that_fails_is_repeated_until_the_time_of_the_holder_is_over() {
    let mut election = holder(at(100));
    for now in [110, 112, 114] {
        assert!(election.next(true, Duration::ZERO, PAST, at(now)).is_some());
        election.begin(at(now));
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(now)), None, "one is under way");
        election.finish(&WriteResult::Failed, at(now));
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(now + 1)), None);
    }
    assert!(election.may_act(at(129)));
    let taken = LeaseWrite::Replace { seen: lease(1, "ours") };
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(130)), Some(taken), "nobody else has taken it");
    assert!(!election.may_act(at(130)));
}

#[test]
fn whoever_sees_another_holder_does_nothing_more() {
    let mut election = holder(at(100));
    election.observe(&lease(2, "theirs"), at(101));
    assert!(!election.may_act(at(101)));
    election.observe(&lease(1, "ours"), at(102));
    assert!(!election.may_act(at(102)), "that was before");
    election.begin(at(102));
    election.finish(&WriteResult::Conflict(lease(3, "theirs")), at(103));
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(142)), None);
    let taken = LeaseWrite::Replace { seen: lease(3, "theirs") };
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(143)), Some(taken), "it was not renewed");
}

#[test]
fn a_lease_is_taken_after_its_whole_duration_without_a_change_and_the_delay_of_this_replica() {
    let mut election = election();
    election.observe(&lease(7, "theirs"), at(10));
    let delay = Duration::from_secs(1);
    assert_eq!(election.next(false, delay, PAST, at(100)), None, "nobody wants it");
    assert_eq!(election.next(true, delay, PAST, at(20)), None);
    election.observe(&lease(8, "theirs"), at(30));
    assert_eq!(election.next(true, delay, PAST, at(70)), None);
    assert!(election.next(true, delay, PAST, at(71)).is_some());
    election.observe(&lease(9, ""), at(71));
    assert_eq!(election.next(true, delay, PAST, at(71)), None);
    assert!(election.next(true, delay, PAST, at(72)).is_some(), "it was given up");
}

#[test]
fn a_lease_that_was_deleted_while_somebody_held_it_counts_as_held_until_it_would_expire() {
    let mut theirs = election();
    theirs.observe(&SeenLease { deleted: true, ..lease(7, "theirs") }, at(10));
    assert_eq!(theirs.next(true, Duration::ZERO, PAST, at(49)), None);
    assert_eq!(theirs.next(true, Duration::ZERO, PAST, at(50)), create_after(7));
    let mut free = election();
    free.observe(&SeenLease { deleted: true, ..lease(7, "") }, at(10));
    assert_eq!(free.next(true, Duration::ZERO, PAST, at(10)), create_after(7));
    let mut ours = holder(at(100));
    ours.begin(at(110));
    ours.finish(&WriteResult::Missing, at(110));
    assert_eq!(ours.next(true, Duration::ZERO, PAST, at(110)), Some(LeaseWrite::Recreate));
    assert!(ours.may_act(at(129)));
}

#[test]
fn a_lease_that_this_process_takes_leaves_the_selection_of_its_watch_before_or_after_the_response() {
    let left = SeenLease { deleted: true, ..lease(8, "theirs") };
    for watch_is_first in [true, false] {
        let mut election = election();
        election.observe(&lease(7, "theirs"), at(10));
        let taken = LeaseWrite::Replace { seen: lease(7, "theirs") };
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(90)), Some(taken));
        election.begin(at(90));
        if watch_is_first {
            election.observe(&left, at(91));
        }
        election.finish(&WriteResult::Written(lease(8, "ours")), at(92));
        election.observe(&left, at(93));
        assert!(election.may_act(at(94)), "{watch_is_first}");
        let renewal = LeaseWrite::Replace { seen: lease(8, "ours") };
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(100)), Some(renewal), "{watch_is_first}");
    }
}

#[test]
fn a_lease_whose_taking_had_an_unknown_result_is_read_when_it_would_have_expired() {
    let mut election = election();
    election.observe(&lease(7, "theirs"), at(10));
    assert!(election.next(true, Duration::ZERO, PAST, at(50)).is_some());
    election.begin(at(50));
    election.finish(&WriteResult::Failed, at(55));
    election.observe(&SeenLease { deleted: true, ..lease(8, "theirs") }, at(56));
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(95)), None, "it may have been deleted");
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(96)), create_after(8));
    election.begin(at(96));
    election.finish(&WriteResult::Conflict(lease(8, "ours")), at(96));
    let taken = LeaseWrite::Replace { seen: lease(8, "ours") };
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(96)), Some(taken));
}

#[test]
fn a_lease_of_which_nothing_is_known_is_created_for_everybody_and_taken_after_its_duration() {
    let mut late = holder(at(100));
    late.begin(at(129));
    late.finish(&WriteResult::Missing, at(131));
    let mut overtaken = election();
    assert_eq!(overtaken.next(true, Duration::ZERO, PAST, at(130)), CREATE);
    overtaken.begin(at(130));
    overtaken.finish(&WriteResult::Missing, at(131));
    for mut election in [late, overtaken] {
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(131)), CREATE);
        election.begin(at(131));
        election.finish(&WriteResult::Written(created(9, "")), at(132));
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(171)), None);
        let taken = Some(LeaseWrite::Replace { seen: lease(9, "") });
        assert_eq!(election.next(true, Duration::ZERO, PAST, at(172)), taken);
        election.begin(at(172));
        election.finish(&WriteResult::Written(lease(10, "ours")), at(173));
        assert!(election.may_act(at(173)));
    }
}

#[test]
fn a_replica_without_history_lets_others_create_a_lease_first() {
    let mut election = election();
    assert_eq!(election.next(true, Duration::ZERO, None, at(10)), None);
    assert_eq!(election.next(true, Duration::ZERO, None, at(49)), None);
    let create = Some(LeaseWrite::Create { since: None });
    assert_eq!(election.next(true, Duration::ZERO, None, at(50)), create);
    election.observe(&created(7, ""), at(50));
    assert_eq!(election.next(true, Duration::ZERO, None, at(89)), None);
    assert!(election.next(true, Duration::ZERO, None, at(90)).is_some());
}

#[test]
fn a_holder_goes_on_with_the_lease_that_takes_the_place_of_a_deleted_one_only_if_it_knows_in_time() {
    for by_another in [true, false] {
        for (answered, goes_on) in [(129, true), (130, false)] {
            let mut election = holder(at(100));
            let write = if by_another {
                election.observe(&created(8, ""), at(105));
                LeaseWrite::Replace { seen: created(8, "") }
            } else {
                election.observe(&SeenLease { deleted: true, ..lease(2, "ours") }, at(105));
                LeaseWrite::Recreate
            };
            assert!(election.may_act(at(110)), "nobody else holds it");
            assert_eq!(election.next(true, Duration::ZERO, PAST, at(110)), Some(write));
            election.begin(at(110));
            election.finish(&WriteResult::Written(created(9, "ours")), at(answered));
            assert_eq!(election.may_act(at(130)), goes_on);
            if goes_on {
                let renewal = Some(LeaseWrite::Replace { seen: lease(9, "ours") });
                assert_eq!(election.next(true, Duration::ZERO, PAST, at(130)), renewal);
            } else {
                assert_eq!(election.give_up(), None, "it is not given up for others to take");
                assert_eq!(election.next(true, Duration::ZERO, PAST, at(answered + 39)), None);
                assert!(election.next(true, Duration::ZERO, PAST, at(answered + 40)).is_some());
            }
        }
    }
}

#[test]
fn a_lease_that_was_created_again_is_not_missing_by_an_earlier_request() {
    let mut election = election();
    election.observe(&lease(7, "theirs"), at(10));
    election.begin(at(50));
    election.observe(&lease(9, "others"), at(51));
    election.finish(&WriteResult::Missing, at(52));
    assert_eq!(election.holder(at(90)), Some("others"));
}

#[test]
fn whoever_gives_a_lease_up_does_nothing_more() {
    let mut election = holder(at(100));
    assert_eq!(election.give_up(), Some(lease(1, "ours")));
    assert!(!election.may_act(at(100)) && election.give_up().is_none());
}

#[test]
fn a_lease_restored_from_a_backup_is_renewed_although_its_version_is_lower() {
    let mut election = holder(at(100));
    election.observe(&lease(900, "ours"), at(101));
    election.begin(at(110));
    election.finish(&WriteResult::Conflict(lease(7, "ours")), at(110));
    let renewal = LeaseWrite::Replace { seen: lease(7, "ours") };
    assert_eq!(election.next(true, Duration::ZERO, PAST, at(110)), Some(renewal));
    election.begin(at(110));
    election.finish(&WriteResult::Written(lease(8, "ours")), at(110));
    assert!(election.may_act(at(139)));
    election.begin(at(120));
    election.finish(&WriteResult::Conflict(lease(6, "theirs")), at(120));
    assert!(!election.may_act(at(120)), "the backup was from before");
}

#[test]
fn a_second_conflict_in_a_row_is_followed_by_a_pause() {
    let mut election = holder(at(100));
    for (now, due) in [(110, 110), (110, 112), (112, 114)] {
        election.begin(at(now));
        election.finish(&WriteResult::Conflict(lease(7, "ours")), at(now));
        assert!(election.next(true, Duration::ZERO, PAST, at(due)).is_some());
        assert!(now == due || election.next(true, Duration::ZERO, PAST, at(due - 1)).is_none());
    }
    election.begin(at(114));
    election.finish(&WriteResult::Failed, at(114));
    election.begin(at(116));
    election.finish(&WriteResult::Conflict(lease(7, "ours")), at(116));
    assert!(election.next(true, Duration::ZERO, PAST, at(116)).is_some(), "it is the first one again");
}

/// An API server with one Lease, which may be deleted and created again.
#[derive(Default)]
struct Cluster {
    version: u64,
    /// The versions at which the Lease was created, changed or deleted.
    events: Vec<u64>,
    lease: Option<SeenLease>,
    /// The deletion that the watch of the holder shows, because the Lease has left its selection; `None` if the holder created it.
    left: Option<SeenLease>,
}

impl Cluster {
    /// Returns the result; `None` after a conflict, which is followed by a read.
    fn write(&mut self, replica: &str, write: &LeaseWrite) -> Option<WriteResult> {
        let existing = self.lease.clone().filter(|lease| !lease.deleted);
        let same =
            |lease: &SeenLease, seen: &SeenLease| (&lease.uid, lease.version) == (&seen.uid, seen.version);
        let (holder, renewed) = match (&existing, write) {
            (None, LeaseWrite::Create { .. }) => ("", false),
            (None, LeaseWrite::Recreate) => (replica, false),
            (Some(lease), LeaseWrite::Replace { seen, .. }) if same(lease, seen) => (replica, seen.renewed),
            (Some(lease), LeaseWrite::GiveUp { seen }) if same(lease, seen) => ("", seen.renewed),
            _ => return None,
        };
        self.version += 1;
        let uid =
            existing.as_ref().map_or_else(|| self.version.to_string().into(), |lease| Arc::clone(&lease.uid));
        let written = SeenLease { uid, renewed, ..lease(self.version, holder) };
        let former = existing.map(|former| former.holder);
        if former.as_deref() != Some(holder) {
            self.left = former.map(|holder| SeenLease { holder, deleted: true, ..written.clone() });
        }
        self.lease = Some(written.clone());
        let is_first = |since: u64| self.events.last().is_none_or(|last| *last <= since);
        let first = matches!(write, LeaseWrite::Create { since: Some(since) } if is_first(*since));
        self.events.push(self.version);
        if !first {
            return Some(WriteResult::Written(written));
        }
        let seen = SeenLease { renewed: true, ..written };
        let Some(WriteResult::Written(taken)) = self.write(replica, &LeaseWrite::Replace { seen }) else {
            unreachable!("nobody writes in between")
        };
        Some(WriteResult::First(taken))
    }

    /// Returns the state after a conflict.
    fn read(&self) -> WriteResult {
        let lease = self.lease.clone().filter(|lease| !lease.deleted);
        lease.map_or(WriteResult::Missing, WriteResult::Conflict)
    }

    /// Deletes the Lease, whoever has seen it, and whatever is on its way.
    fn delete(&mut self) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.deleted) {
            self.version += 1;
            self.events.push(self.version);
            (lease.version, lease.deleted) = (self.version, true);
        }
    }
}

/// One of the replicas: its election, a clock that began at another time, and what is on its way.
struct Replica {
    name: &'static str,
    election: LeaseElection,
    versions: VersionHistory,
    ahead: Duration,
    request: Option<LeaseWrite>,
    /// `true` if its request met a conflict, and it is to read the Lease.
    reads: bool,
    response: Option<WriteResult>,
    /// A request that its sender has given up, and that may still arrive.
    late: Option<LeaseWrite>,
    /// The newest state that the watch has shown.
    shown: Option<SeenLease>,
    /// The state that the watch has not delivered yet.
    news: Option<SeenLease>,
}

impl Replica {
    fn now(&self, now: Duration) -> BootTime {
        BootTime::default() + now + self.ahead
    }
}

/// The next event of a run.
#[derive(Clone, Debug)]
enum Happening {
    /// Time passes, in seconds.
    Passes(u64),
    /// A replica looks at its election and sends the write that is due. One that does not is paused.
    Looks(usize),
    /// The request of a replica reaches the server.
    Arrives(usize),
    /// The request to read the Lease after a conflict reaches the server.
    Reads(usize),
    /// The response reaches the replica.
    Responds(usize),
    /// The replica gives up waiting for a response. The request may arrive later.
    TimesOut(usize),
    /// A request that was given up reaches the server.
    ArrivesLate(usize),
    /// The watch shows the newest state.
    Shows(usize),
    /// The watch begins again, with a list in which the Lease is missing.
    Misses(usize),
    /// The watch delivers what it showed.
    Delivers(usize),
    /// A replica gives the Lease up.
    GivesUp(usize),
    /// A replica gets the response to the write of another Lease.
    Learns(usize),
    /// Somebody deletes the Lease.
    Deleted,
}

fn happening() -> impl Strategy<Value = Happening> {
    let replica = 0..3_usize;
    prop_oneof![
        3 => (1..15_u64).prop_map(Happening::Passes),
        6 => replica.clone().prop_map(Happening::Looks),
        5 => replica.clone().prop_map(Happening::Arrives),
        5 => replica.clone().prop_map(Happening::Reads),
        5 => replica.clone().prop_map(Happening::Responds),
        1 => replica.clone().prop_map(Happening::TimesOut),
        1 => replica.clone().prop_map(Happening::ArrivesLate),
        3 => replica.clone().prop_map(Happening::Shows),
        1 => replica.clone().prop_map(Happening::Misses),
        3 => replica.clone().prop_map(Happening::Delivers),
        1 => replica.clone().prop_map(Happening::GivesUp),
        2 => replica.clone().prop_map(Happening::Learns),
        1 => Just(Happening::Deleted),
    ]
}

fn replicas() -> [Replica; 3] {
    [("a", 0), ("b", 5000), ("c", 77)].map(|(name, ahead)| Replica {
        name,
        election: LeaseElection::new(name, TIMING),
        versions: VersionHistory::default(),
        ahead: Duration::from_secs(ahead),
        request: None,
        reads: false,
        response: None,
        late: None,
        shown: None,
        news: None,
    })
}

fn happen(cluster: &mut Cluster, replicas: &mut [Replica; 3], time: Duration, what: &Happening) {
    match *what {
        Happening::Passes(_) => {}
        Happening::Looks(of) => {
            let replica = &mut replicas[of];
            let now = replica.now(time);
            let history = replica.versions.before(TIMING.duration, now);
            if let Some(write) = replica.election.next(true, Duration::ZERO, history, now) {
                replica.election.begin(now);
                replica.request = Some(write);
            }
        }
        Happening::Arrives(of) => {
            let replica = &mut replicas[of];
            if let Some(write) = replica.request.take() {
                let written = cluster.write(replica.name, &write);
                replica.reads = written.is_none();
                replica.response = written;
            }
        }
        Happening::Reads(of) => {
            let replica = &mut replicas[of];
            if std::mem::take(&mut replica.reads) {
                replica.response = Some(cluster.read());
            }
        }
        Happening::Responds(of) => {
            let replica = &mut replicas[of];
            let now = replica.now(time);
            if let Some(result) = replica.response.take() {
                replica.election.finish(&result, now);
            }
        }
        Happening::TimesOut(of) => {
            let replica = &mut replicas[of];
            let now = replica.now(time);
            if replica.request.is_some() || replica.reads || replica.response.is_some() {
                replica.late = replica.request.take().or(replica.late.take());
                (replica.reads, replica.response) = (false, None);
                replica.election.finish(&WriteResult::Failed, now);
            }
        }
        Happening::ArrivesLate(of) => {
            let replica = &mut replicas[of];
            if let Some(write) = replica.late.take() {
                cluster.write(replica.name, &write);
            }
        }
        Happening::Shows(of) => {
            let replica = &mut replicas[of];
            let is_holder = cluster.lease.as_ref().is_some_and(|lease| *lease.holder == *replica.name);
            replica.news.clone_from(if is_holder { &cluster.left } else { &cluster.lease });
            replica.shown.clone_from(&replica.news);
        }
        Happening::Misses(of) => {
            let replica = &mut replicas[of];
            let is_missing = |lease: &SeenLease| lease.deleted || *lease.holder == *replica.name;
            if cluster.lease.as_ref().is_some_and(is_missing) {
                replica.shown = replica.shown.take().map(SeenLease::deleted_unseen);
                replica.news.clone_from(&replica.shown);
            }
        }
        Happening::GivesUp(of) => {
            let replica = &mut replicas[of];
            replica.request = replica.election.hand_over(replica.now(time)).or(replica.request.take());
        }
        Happening::Learns(of) => {
            let replica = &mut replicas[of];
            cluster.version += 1;
            replica.versions.record(cluster.version, replica.now(time));
        }
        Happening::Deleted => cluster.delete(),
        Happening::Delivers(of) => {
            let replica = &mut replicas[of];
            let now = replica.now(time);
            if let Some(seen) = replica.news.take() {
                replica.election.observe(&seen, now);
            }
        }
    }
}

proptest! {
    #[test]
    fn of_three_replicas_never_two_may_act_and_one_does_when_all_is_well(
        happenings in proptest::collection::vec(happening(), 0..400),
    ) {
        let (mut cluster, mut replicas, mut time) = (Cluster::default(), replicas(), Duration::ZERO);
        let acting = |replicas: &[Replica; 3], time| {
            replicas.iter().filter(|replica| replica.election.may_act(replica.now(time))).count()
        };
        for what in &happenings {
            if let Happening::Passes(seconds) = what {
                time += Duration::from_secs(*seconds);
            }
            happen(&mut cluster, &mut replicas, time, what);
            prop_assert!(acting(&replicas, time) <= 1, "two may act after {what:?}");
        }
        for _ in 0..100 {
            time += Duration::from_secs(1);
            for of in 0..3 {
                for what in [Happening::Shows(of), Happening::Delivers(of), Happening::Looks(of), Happening::Arrives(of), Happening::Reads(of), Happening::Responds(of)] {
                    happen(&mut cluster, &mut replicas, time, &what);
                    prop_assert!(acting(&replicas, time) <= 1, "two may act after {what:?}");
                }
            }
        }
        prop_assert_eq!(acting(&replicas, time), 1);
    }
}
