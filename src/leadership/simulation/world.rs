//! Participants, a server, and a network that delays, loses and reorders between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::clock::BootTime;
use super::super::election::{Election, Luck, Outcome, Step};
use super::super::lease::{Draft, Sighting};
use super::{TIMING, Time};

/// How long a participant waits for an answer.
const PATIENCE: Time = 5_000;
/// How long a message is under way at most.
pub(super) const LONGEST_WAY: Time = 20_000;

pub(super) enum Request {
    Look,
    Write(Draft),
}

pub(super) enum Answer {
    Seen(Option<Sighting>),
    Wrote(Outcome),
}

pub(super) enum Event {
    /// A participant's own timer.
    Wake,
    Arrives(Request),
    Answered(Answer),
    /// The server tells a listener of a change.
    Told(Option<Sighting>),
    /// The listener notices that it hears nothing any more.
    Deaf,
    GivesUpWaiting,
    Starts,
    Killed,
}

/// What happens, when, to which life of which participant. `turn` numbers its requests and timers: what belongs to an
/// earlier one is over.
struct Happening {
    node: usize,
    life: u32,
    turn: u32,
    event: Event,
}

struct Node {
    election: Option<Election>,
    life: u32,
    turn: u32,
    asks: bool,
    sent: BootTime,
    /// The fence: until when it acts.
    term: BootTime,
    /// What it was told while it waited for an answer.
    backlog: Vec<Option<Sighting>>,
    listens: bool,
    stopped_until: Time,
    /// Its boot clock: what it showed in the beginning, and how fast it goes.
    offset: Duration,
    rate: f64,
}

pub(super) struct World {
    now: Time,
    /// By time, rank and number.
    happenings: BTreeMap<(Time, u8, u64), Happening>,
    count: u64,
    luck: Luck,
    nodes: Vec<Node>,
    lease: Option<Sighting>,
    versions: u64,
    /// Until when things go wrong.
    storm: Time,
    /// Whether the server tells of changes.
    watches: bool,
}

impl Node {
    fn clock(&self, now: Time) -> BootTime {
        BootTime::default() + self.offset + Duration::from_millis(now).mul_f64(self.rate)
    }

    fn acts(&self, now: Time) -> bool {
        self.clock(now) < self.term
    }

    /// When its clock will show that time.
    fn when(&self, time: BootTime) -> Time {
        let shown = (time - BootTime::default()).saturating_sub(self.offset);
        Time::try_from(shown.div_f64(self.rate).as_millis()).unwrap() + 1
    }
}

impl World {
    pub(super) fn new(seed: u64, nodes: usize, storm: Time, watches: bool) -> Self {
        let mut luck = Luck(seed);
        let node = |luck: &mut Luck| Node {
            election: None,
            life: 0,
            turn: 0,
            asks: false,
            sent: BootTime::default(),
            term: BootTime::default(),
            backlog: Vec::new(),
            listens: false,
            stopped_until: 0,
            offset: Duration::from_secs_f64(luck.next() * 1e6),
            rate: 0.95 + 0.1 * luck.next(),
        };
        let nodes: Vec<_> = (0..nodes).map(|_| node(&mut luck)).collect();
        let mut world = Self {
            now: 0,
            happenings: BTreeMap::new(),
            count: 0,
            luck,
            nodes,
            lease: None,
            versions: 0,
            storm,
            watches,
        };
        for node in 0..world.nodes.len() {
            let after = world.up_to(3_000);
            world.later(after, node, Event::Starts);
        }
        world
    }

    fn up_to(&mut self, most: Time) -> Time {
        let time = Duration::from_millis(most).mul_f64(self.luck.next());
        Time::try_from(time.as_millis()).unwrap()
    }

    /// Whether something goes wrong that does so in one of so many cases.
    fn unlucky(&mut self, one_in: f64) -> bool {
        self.now < self.storm && self.luck.next() * one_in < 1.0
    }

    /// How long a message is under way; none if it is lost.
    fn way(&mut self) -> Option<Time> {
        if self.unlucky(8.0) {
            return None;
        }
        let most = if self.unlucky(5.0) { LONGEST_WAY } else { 30 };
        Some(1 + self.up_to(most - 1))
    }

    pub(super) fn later(&mut self, after: Time, node: usize, event: Event) {
        let Node { life, turn, .. } = self.nodes[node];
        self.happens_at(self.now + after, Happening { node, life, turn, event });
    }

    /// Who goes on after a stop finds an answer before it finds that it has waited too long.
    fn happens_at(&mut self, time: Time, happening: Happening) {
        let rank = u8::from(!matches!(happening.event, Event::Answered(_)));
        self.count += 1;
        self.happenings.insert((time, rank, self.count), happening);
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].acts(self.now)).collect()
    }

    /// Lets time pass. Answers when somebody led first, or led still.
    pub(super) fn run_until(&mut self, end: Time) -> Option<Time> {
        let mut led = None;
        while let Some(((time, ..), _)) = self.happenings.first_key_value()
            && *time <= end
        {
            let ((time, ..), happening) = self.happenings.pop_first().expect("it was looked at above");
            self.now = time;
            let stopped_until = self.nodes[happening.node].stopped_until;
            let at_server = matches!(happening.event, Event::Arrives(_) | Event::Killed);
            if !at_server && stopped_until > time {
                self.happens_at(stopped_until, happening);
                continue;
            }
            self.happens(happening);
            let leaders = self.leaders();
            assert!(leaders.len() < 2, "at {time} ms these act: {leaders:?}");
            if led.is_none() && !leaders.is_empty() {
                led = Some(time);
            }
        }
        self.now = end;
        led
    }

    fn happens(&mut self, Happening { node, life, turn, event }: Happening) {
        // A request that is under way arrives, whatever became of its sender.
        if let Event::Arrives(request) = event {
            return self.serve(node, life, turn, request);
        }
        if self.nodes[node].life != life {
            return;
        }
        let now = self.nodes[node].clock(self.now);
        let this = &mut self.nodes[node];
        let due = this.turn == turn;
        match (event, &mut this.election) {
            (Event::Starts, election) => {
                let identity = format!("{node}-{life}");
                *election = Some(Election::new(identity, TIMING, self.count));
                this.asks = false;
            }
            (Event::Killed, _) => return self.ends(node),
            (Event::Told(lease), Some(_)) if this.asks => this.backlog.push(lease),
            (Event::Told(lease), Some(election)) => election.saw(now, lease),
            (Event::Deaf, Some(election)) => election.is_deaf(now),
            (Event::Answered(answer), Some(election)) if due => {
                this.asks = false;
                match answer {
                    Answer::Seen(lease) => {
                        this.listens = lease.is_some();
                        election.saw(now, lease);
                        if !this.listens {
                            election.is_deaf(now);
                        }
                    }
                    Answer::Wrote(outcome) => election.wrote(this.sent, now, outcome),
                }
            }
            (Event::GivesUpWaiting, Some(election)) if due && this.asks => {
                this.asks = false;
                election.wrote(this.sent, now, Outcome::Failed);
            }
            (Event::Wake, Some(_)) if due => {}
            _ => return,
        }
        self.goes_on(node);
    }

    /// What the shell does between two things that happen to it.
    fn goes_on(&mut self, node: usize) {
        let now = self.nodes[node].clock(self.now);
        let this = &mut self.nodes[node];
        let Some(election) = &mut this.election else { return };
        if this.asks {
            return;
        }
        if let Some(deadline) = election.deadline() {
            this.term = deadline;
            this.listens = false;
            this.backlog.clear();
        }
        for lease in this.backlog.drain(..) {
            election.saw(now, lease);
        }
        this.turn += 1;
        let step = election.step(now);
        let left = election.deadline().map(|deadline| deadline - now);
        match step {
            Step::Wait(until) => {
                let wake = this.when(until).saturating_sub(self.now).max(1);
                self.later(wake, node, Event::Wake);
                self.is_tried(node);
            }
            Step::Look => self.ask(node, Request::Look, PATIENCE),
            Step::Write(draft) => {
                let left = left.map_or(PATIENCE, |left| Time::try_from(left.as_millis()).unwrap());
                self.ask(node, Request::Write(draft), PATIENCE.min(left));
            }
            Step::StandDown(_) => self.ends(node),
        }
    }

    /// A process that waits may be stopped or killed, or lose its watch.
    fn is_tried(&mut self, node: usize) {
        if self.unlucky(12.0) {
            self.nodes[node].stopped_until = self.now + self.up_to(40_000);
        }
        if self.unlucky(40.0) {
            let after = self.up_to(5_000);
            self.later(after, node, Event::Killed);
        }
        if self.nodes[node].listens && self.unlucky(10.0) {
            self.nodes[node].listens = false;
            self.later(1, node, Event::Deaf);
        }
    }

    fn ask(&mut self, node: usize, request: Request, patience: Time) {
        self.nodes[node].asks = true;
        self.nodes[node].sent = self.nodes[node].clock(self.now);
        self.later(patience.max(1), node, Event::GivesUpWaiting);
        // It may be stopped when it has decided and not sent, and when it has sent.
        let held = if self.unlucky(20.0) { self.up_to(40_000) } else { 0 };
        let stopped = if self.unlucky(20.0) { self.up_to(40_000) } else { 0 };
        self.nodes[node].stopped_until = self.nodes[node].stopped_until.max(self.now + held + stopped);
        if let Some(way) = self.way() {
            self.later(held + way, node, Event::Arrives(request));
        }
    }

    /// The process is gone, and another one takes its place.
    fn ends(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        (this.election, this.term, this.stopped_until) = (None, BootTime::default(), 0);
        (this.listens, this.asks, this.life) = (false, false, this.life + 1);
        this.backlog.clear();
        let after = self.up_to(3_000);
        self.later(after, node, Event::Starts);
    }

    /// What the API server does.
    fn serve(&mut self, node: usize, life: u32, turn: u32, request: Request) {
        let answer = match request {
            Request::Look => Answer::Seen(self.lease.clone()),
            Request::Write(draft) => Answer::Wrote(self.write(&draft)),
        };
        if let Some(way) = self.way() {
            let answered = Happening { node, life, turn, event: Event::Answered(answer) };
            self.happens_at(self.now + way, answered);
        }
    }

    fn write(&mut self, draft: &Draft) -> Outcome {
        match (&self.lease, &draft.version) {
            (None, Some(_)) => return Outcome::Missing,
            (Some(lease), Some(version)) if lease.version == *version => {}
            (None, None) => {}
            _ => return Outcome::Conflict,
        }
        self.versions += 1;
        let lease = Sighting {
            version: self.versions.to_string(),
            holder: draft.holder.clone(),
            duration: Some(Duration::from_secs(u64::try_from(draft.duration_seconds).unwrap())),
            transitions: draft.transitions.unwrap_or_default(),
        };
        self.lease = Some(lease.clone());
        for node in 0..self.nodes.len() {
            if self.watches && self.nodes[node].listens {
                let delay = if self.unlucky(5.0) { self.up_to(LONGEST_WAY) } else { 1 + self.up_to(30) };
                self.later(delay, node, Event::Told(Some(lease.clone())));
            }
        }
        Outcome::Written(lease)
    }
}
