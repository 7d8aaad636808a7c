//! Simulated participants, their server, and the network between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::elector::{Elector, ElectorAction};
use super::super::lease::LeaseOutcome;
use super::super::lease::{LeaseUpdate, ObservedLease};
use super::simulation::{TIMING, Time};
use staffetta_handler::BootTime;

/// The longest time that a participant waits for a response.
const REQUEST_TIMEOUT: Time = 5_000;
/// The longest delay of a message.
pub(super) const MAX_DELAY: Time = 20_000;

pub(super) enum Request {
    Read,
    Write(LeaseUpdate),
}

pub(super) enum Response {
    Read(Option<ObservedLease>),
    Written(LeaseOutcome),
}

pub(super) enum Event {
    /// The timer of a participant expires.
    Timer,
    Received(Request),
    Responded(Response),
    /// The watch of a participant reports a change.
    Changed(Option<ObservedLease>),
    /// The watch of a participant ends.
    WatchEnded,
    TimedOut,
    Starts,
    Killed,
}

/// An event for one participant. `life` counts the restarts of the participant, `turn` its requests and timers. Events of an earlier
/// life or turn are ignored.
struct ScheduledEvent {
    node: usize,
    life: u32,
    round: u32,
    event: Event,
}

struct Node {
    election: Option<Elector>,
    /// The identity of the last term, if this process ended it itself.
    previous: Option<String>,
    life: u32,
    round: u32,
    is_waiting: bool,
    sent: BootTime,
    /// The deadline until which the participant acts as the leader.
    term: BootTime,
    /// The changes that were reported while the participant waited for a response.
    backlog: Vec<Option<ObservedLease>>,
    watches: bool,
    stopped_until: Time,
    /// The boot clock of the participant: the time at the start, and the speed.
    offset: Duration,
    rate: f64,
}

pub(super) struct World {
    now: Time,
    /// Ordered by time, rank and sequence number.
    schedule: BTreeMap<(Time, u8, u64), ScheduledEvent>,
    count: u64,
    jitter: Jitter,
    nodes: Vec<Node>,
    lease: Option<ObservedLease>,
    versions: u64,
    /// The time until which faults occur.
    faults_end: Time,
    /// `true` if the server supports watches.
    serves_watches: bool,
}

impl Node {
    fn clock(&self, now: Time) -> BootTime {
        BootTime::default() + self.offset + Duration::from_millis(now).mul_f64(self.rate)
    }

    fn acts(&self, now: Time) -> bool {
        self.clock(now) < self.term
    }

    /// Returns the simulated time at which the clock of the participant shows `time`.
    fn when(&self, time: BootTime) -> Time {
        let shown = (time - BootTime::default()).saturating_sub(self.offset);
        Time::try_from(shown.div_f64(self.rate).as_millis()).unwrap() + 1
    }
}

impl World {
    pub(super) fn new(seed: u64, nodes: usize, faults_end: Time, watches: bool) -> Self {
        let mut jitter = Jitter(seed);
        let node = |jitter: &mut Jitter| Node {
            election: None,
            previous: None,
            life: 0,
            round: 0,
            is_waiting: false,
            sent: BootTime::default(),
            term: BootTime::default(),
            backlog: Vec::new(),
            watches: false,
            stopped_until: 0,
            offset: Duration::from_secs_f64(jitter.next() * 1e6),
            rate: 0.95 + 0.1 * jitter.next(),
        };
        let nodes: Vec<_> = (0..nodes).map(|_| node(&mut jitter)).collect();
        let mut world = Self {
            now: 0,
            schedule: BTreeMap::new(),
            count: 0,
            jitter,
            nodes,
            lease: None,
            versions: 0,
            faults_end,
            serves_watches: watches,
        };
        for node in 0..world.nodes.len() {
            let after = world.up_to(3_000);
            world.later(after, node, Event::Starts);
        }
        world
    }

    fn up_to(&mut self, most: Time) -> Time {
        let time = Duration::from_millis(most).mul_f64(self.jitter.next());
        Time::try_from(time.as_millis()).unwrap()
    }

    /// Returns `true` for a fault that occurs in one of `one_in` cases.
    fn fault(&mut self, one_in: f64) -> bool {
        self.now < self.faults_end && self.jitter.next() * one_in < 1.0
    }

    /// Returns the delay of a message; `None` if the message is lost.
    fn delay(&mut self) -> Option<Time> {
        if self.fault(8.0) {
            return None;
        }
        let most = if self.fault(5.0) { MAX_DELAY } else { 30 };
        Some(1 + self.up_to(most - 1))
    }

    pub(super) fn later(&mut self, after: Time, node: usize, event: Event) {
        let Node { life, round, .. } = self.nodes[node];
        self.schedule_at(self.now + after, ScheduledEvent { node, life, round, event });
    }

    /// A participant that continues after a stop gets a response before its timeout.
    fn schedule_at(&mut self, time: Time, scheduled: ScheduledEvent) {
        let rank = u8::from(!matches!(scheduled.event, Event::Responded(_)));
        self.count += 1;
        self.schedule.insert((time, rank, self.count), scheduled);
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].acts(self.now)).collect()
    }

    /// Runs the simulation until `end`. Returns the first time at which there was a leader.
    pub(super) fn run_until(&mut self, end: Time) -> Option<Time> {
        let mut led = None;
        while let Some(((time, ..), _)) = self.schedule.first_key_value()
            && *time <= end
        {
            let ((time, ..), scheduled) = self.schedule.pop_first().expect("the map is not empty");
            self.now = time;
            let stopped_until = self.nodes[scheduled.node].stopped_until;
            let at_server = matches!(scheduled.event, Event::Received(_) | Event::Killed);
            if !at_server && stopped_until > time {
                self.schedule_at(stopped_until, scheduled);
                continue;
            }
            // Somebody deletes the lease.
            if self.fault(100.0) {
                self.lease = None;
                self.notify();
            }
            self.process(scheduled);
            let leaders = self.leaders();
            assert!(leaders.len() < 2, "at {time} ms these act: {leaders:?}");
            if led.is_none() && !leaders.is_empty() {
                led = Some(time);
            }
        }
        self.now = end;
        led
    }

    fn process(&mut self, ScheduledEvent { node, life, round, event }: ScheduledEvent) {
        // A sent request arrives even if its sender was killed.
        if let Event::Received(request) = event {
            return self.serve(node, life, round, request);
        }
        if self.nodes[node].life != life {
            return;
        }
        let now = self.nodes[node].clock(self.now);
        let this = &mut self.nodes[node];
        let due = this.round == round;
        match (event, &mut this.election) {
            (Event::Starts, election) => {
                let identity = format!("{node}-{life}");
                // A process whose previous term has ended takes part again; one that was killed has no previous term.
                let previous = this.previous.take();
                *election = Some(Elector::new(identity, previous, TIMING));
                this.is_waiting = false;
            }
            (Event::Killed, _) => return self.end_process(node),
            (Event::Changed(lease), Some(_)) if this.is_waiting => this.backlog.push(lease),
            (Event::Changed(lease), Some(election)) => election.observe(now, lease),
            (Event::WatchEnded, Some(election)) => election.watch_ended(now),
            (Event::Responded(response), Some(election)) if due => {
                this.is_waiting = false;
                match response {
                    Response::Read(lease) => {
                        this.watches = lease.is_some();
                        election.observe(now, lease);
                        if !this.watches {
                            election.watch_ended(now);
                        }
                    }
                    Response::Written(outcome) => election.write_completed(this.sent, now, outcome),
                }
            }
            (Event::TimedOut, Some(election)) if due && this.is_waiting => {
                this.is_waiting = false;
                election.write_completed(this.sent, now, LeaseOutcome::Failed);
            }
            (Event::Timer, Some(_)) if due => {}
            _ => return,
        }
        self.act(node);
    }

    /// Performs the next action of a participant, as the election loop does.
    fn act(&mut self, node: usize) {
        let now = self.nodes[node].clock(self.now);
        let this = &mut self.nodes[node];
        let Some(election) = &mut this.election else { return };
        if this.is_waiting {
            return;
        }
        if let Some(deadline) = election.deadline() {
            this.term = deadline;
            this.watches = false;
            this.backlog.clear();
        }
        for lease in this.backlog.drain(..) {
            election.observe(now, lease);
        }
        this.round += 1;
        let step = election.next_action(now);
        let left = election.deadline().map(|deadline| deadline - now);
        match step {
            ElectorAction::Wait(until) => {
                let wake = this.when(until).saturating_sub(self.now).max(1);
                self.later(wake, node, Event::Timer);
                self.inject_faults(node);
            }
            ElectorAction::Read => self.send(node, Request::Read, REQUEST_TIMEOUT),
            ElectorAction::Write(draft) => {
                let left = left.map_or(REQUEST_TIMEOUT, |left| Time::try_from(left.as_millis()).unwrap());
                self.send(node, Request::Write(draft), REQUEST_TIMEOUT.min(left));
            }
            ElectorAction::Stop(_) => {
                this.previous = Some(format!("{node}-{}", this.life));
                self.end_process(node);
            }
        }
    }

    /// Injects faults into a waiting process: it may be stopped or killed, or lose its watch.
    fn inject_faults(&mut self, node: usize) {
        if self.fault(12.0) {
            self.nodes[node].stopped_until = self.now + self.up_to(40_000);
        }
        if self.fault(40.0) {
            let after = self.up_to(5_000);
            self.later(after, node, Event::Killed);
        }
        if self.nodes[node].watches && self.fault(10.0) {
            self.nodes[node].watches = false;
            self.later(1, node, Event::WatchEnded);
        }
    }

    fn send(&mut self, node: usize, request: Request, timeout: Time) {
        self.nodes[node].is_waiting = true;
        self.nodes[node].sent = self.nodes[node].clock(self.now);
        self.later(timeout.max(1), node, Event::TimedOut);
        // The process may be stopped before and after it sends the request.
        let held = if self.fault(20.0) { self.up_to(40_000) } else { 0 };
        let stopped = if self.fault(20.0) { self.up_to(40_000) } else { 0 };
        self.nodes[node].stopped_until = self.nodes[node].stopped_until.max(self.now + held + stopped);
        if let Some(delay) = self.delay() {
            self.later(held + delay, node, Event::Received(request));
        }
    }

    /// Ends the process and schedules its restart.
    fn end_process(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        (this.election, this.term, this.stopped_until) = (None, BootTime::default(), 0);
        (this.watches, this.is_waiting, this.life) = (false, false, this.life + 1);
        this.backlog.clear();
        let after = self.up_to(3_000);
        self.later(after, node, Event::Starts);
    }

    /// Processes a request at the API server.
    fn serve(&mut self, node: usize, life: u32, round: u32, request: Request) {
        let response = match request {
            Request::Read => Response::Read(self.lease.clone()),
            Request::Write(draft) => Response::Written(self.write(&draft)),
        };
        if let Some(delay) = self.delay() {
            let responded = ScheduledEvent { node, life, round, event: Event::Responded(response) };
            self.schedule_at(self.now + delay, responded);
        }
    }

    fn write(&mut self, draft: &LeaseUpdate) -> LeaseOutcome {
        match (&self.lease, &draft.version) {
            (Some(lease), Some(version)) if lease.version == *version => {}
            (None, None) => {}
            _ => return LeaseOutcome::Conflict,
        }
        self.versions += 1;
        let renewed = draft.renews || self.lease.as_ref().is_some_and(|lease| lease.renewed);
        let lease = ObservedLease {
            renewed,
            version: self.versions.to_string(),
            holder: draft.holder.clone(),
            duration: Some(Duration::from_secs(u64::try_from(draft.duration_seconds).unwrap())),
            transitions: draft.transitions.unwrap_or_default(),
        };
        self.lease = Some(lease.clone());
        self.notify();
        LeaseOutcome::Written(lease)
    }

    /// Reports the state of the lease to the participants that watch it.
    fn notify(&mut self) {
        for node in 0..self.nodes.len() {
            if self.serves_watches && self.nodes[node].watches {
                let delay = if self.fault(5.0) { self.up_to(MAX_DELAY) } else { 1 + self.up_to(30) };
                self.later(delay, node, Event::Changed(self.lease.clone()));
            }
        }
    }
}

/// A pseudo-random sequence: `SplitMix64` (Steele, Lea and Flood 2014). Nothing depends on its quality.
struct Jitter(u64);

impl Jitter {
    /// Returns the next number, from 0 to less than 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float")]
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
