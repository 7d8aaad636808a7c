//! Properties of a queue under any order of events, triggers, deletions and failures.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::test_message::TestMessage;

/// The delay after which a failed message is handled again, and the time by which [`Step::Advance`] advances the clock.
const LATER: Duration = Duration::from_secs(60);

/// A step of a test.
#[derive(Clone, Debug)]
enum Step {
    Arrive(TestMessage),
    /// Takes the next message if none is being handled; otherwise ends the current one with this result.
    Handle(Answer),
    Advance,
}

/// The result of handling a message.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Succeed,
    /// A permanent failure.
    Fail,
    /// A transient failure.
    Retry,
    /// The work is not finished.
    Again,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use TestMessage as M;
    let message = (0..3_u8, 0..6_u8).prop_map(|(object, form)| {
        let uid = ["a", "b", "c"][usize::from(object)];
        match form {
            0 => M::added(uid),
            1 => M::modified(uid, 0),
            2 => M::terminating(uid, 0),
            3 => M::deleted(uid),
            4 => M::missed(uid),
            _ => M::trigger(uid, 0),
        }
    });
    let answer =
        prop_oneof![Just(Answer::Succeed), Just(Answer::Fail), Just(Answer::Retry), Just(Answer::Again)];
    let step = prop_oneof![
        4 => message.prop_map(Step::Arrive),
        4 => answer.prop_map(Step::Handle),
        1 => Just(Step::Advance),
    ];
    prop::collection::vec(step, 1..60)
}

/// The queue under test with the history of its messages. The version of a message is the number of the step in which it arrived.
struct World {
    queue: KeyQueue<TestMessage>,
    by_key: bool,
    clock: u64,
    /// The number of the step in which the current message was taken.
    taken: u64,
    /// The messages in order of their first attempt.
    attempted: Vec<TestMessage>,
    /// The messages that were handled successfully, with the numbers of the steps in which they were taken.
    handled: Vec<(u64, TestMessage)>,
    /// The watch events in order of arrival.
    arrived: Vec<TestMessage>,
}

impl World {
    fn new(by_key: bool) -> Self {
        Self {
            queue: KeyQueue::new(false, by_key),
            by_key,
            clock: 0,
            taken: 0,
            attempted: Vec::new(),
            handled: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Returns all messages of the queue for which `condition` returns `true`.
    fn messages(&self, condition: impl Fn(&TestMessage) -> bool) -> Vec<TestMessage> {
        let messages = self.queue.entries().map(|entry| entry.event);
        messages.filter(|message| condition(message)).collect()
    }

    async fn step(&mut self, step: Step) {
        self.clock += 1;
        match step {
            Step::Arrive(message) => self.arrive(numbered(message, self.clock)),
            Step::Handle(answer) if self.queue.running().is_some() => self.answer(answer),
            Step::Handle(_) => self.take(),
            Step::Advance => tokio::time::advance(LATER).await,
        }
    }

    fn arrive(&mut self, message: TestMessage) {
        let is_watched = |message: &TestMessage| !message.is_trigger();
        let watched = self.messages(is_watched);
        let finalizing = self.messages(TestMessage::finalizing);
        let failed: Vec<_> = self.queue.items.iter().filter(|item| item.waiting().is_some()).collect();
        let failed: Vec<_> = failed.into_iter().map(|item| item.event.clone()).collect();
        let idle = self.queue.started && self.queue.is_empty();
        self.queue.push(message.clone(), Instant::now());
        if idle {
            self.take();
        }
        if message.is_trigger() {
            assert_eq!(self.messages(is_watched), watched, "{message} changes no event");
            return;
        }
        for older in finalizing {
            let exists_again = failed.contains(&older) && message.change() == Change::Added;
            let may_go = older.uid() == message.uid() && (message.finalizing() || exists_again);
            assert!(may_go || self.messages(|_| true).contains(&older), "{message} replaces {older}");
        }
        self.arrived.push(message);
    }

    fn take(&mut self) {
        self.queue.started = true;
        if let Some(attempt) = self.queue.next(Instant::now()) {
            self.attempt(attempt);
        }
    }

    fn attempt(&mut self, attempt: Attempt<TestMessage>) {
        let event = attempt.event;
        let waits = |item: &Item<TestMessage>| item.waiting().is_some() && item.event.uid() == event.uid();
        let is_overtaken = |item: &Item<TestMessage>| waits(item) && !item.event.is_trigger();
        assert!(
            event.is_trigger() || !self.queue.items.iter().any(is_overtaken),
            "{event} is handled before what waits of its object"
        );
        self.taken = self.clock;
        if self.attempted.iter().all(|attempted| attempted.version != event.version) {
            self.attempted.push(event);
        }
    }

    fn answer(&mut self, answer: Answer) {
        let running = self.queue.running().expect("the caller checked it");
        let running = self.queue.items[running].event.clone();
        let next = match answer {
            Answer::Succeed => {
                self.handled.push((self.taken, running));
                None
            }
            Answer::Fail => Some(tests::waits(WaitKind::Failed, LATER)),
            Answer::Retry => Some(tests::waits(WaitKind::Retrying, LATER)),
            Answer::Again => Some(tests::waits(WaitKind::Unfinished, LATER)),
        };
        self.queue.end(next, Instant::now());
    }

    /// Handles messages, all successfully, until the queue is empty.
    async fn finish(&mut self) {
        while !self.queue.is_empty() {
            self.step(Step::Handle(Answer::Succeed)).await;
            tokio::time::advance(LATER).await;
        }
    }

    /// Returns the last watch event of each object.
    fn last(&self) -> impl Iterator<Item = &TestMessage> {
        let by_object: HashMap<_, _> = self.arrived.iter().map(|message| (message.uid(), message)).collect();
        by_object.into_values()
    }

    /// Returns `true` if the last event of an object was handled: itself, or by key a newer message of the key, which
    /// reconciles all objects of the key.
    fn is_handled(&self, last: &TestMessage) -> bool {
        let is_deletion = |message: &TestMessage| message.change() == Change::Deleted;
        // The deletion of an object supersedes others only through the events that it cancels.
        let has_superseded = |message: &TestMessage| {
            let newer = |other: &TestMessage| other.version > last.version && !is_deletion(other);
            !is_deletion(message)
                || self.arrived.iter().any(|other| other.uid() == message.uid() && newer(other))
        };
        let by_key = self.by_key && !last.finalizing();
        self.handled.iter().filter(|(_, message)| !message.is_trigger()).any(|(taken, message)| {
            let itself = match last.change() {
                Change::Deleted => {
                    is_deletion(message) && message.uid() == last.uid() && *taken >= last.version
                }
                _ => message.version == last.version,
            };
            itself || by_key && *taken > last.version && has_superseded(message)
        })
    }
}

/// Returns the message with this version.
fn numbered(mut message: TestMessage, version: u64) -> TestMessage {
    message.version = version;
    message
}

fn run(by_key: bool, steps: &[Step]) -> World {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut world = World::new(by_key);
        for step in steps {
            world.step(step.clone()).await;
        }
        world.finish().await;
        world
    })
}

/// Returns the watch events among the steps, with their versions.
fn watched(steps: &[Step]) -> impl Iterator<Item = TestMessage> {
    let numbered = steps.iter().zip(1..).filter_map(|(step, version)| match step {
        Step::Arrive(message) => Some(numbered(message.clone(), version)),
        Step::Handle(_) | Step::Advance => None,
    });
    numbered.filter(|message| !message.is_trigger())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_last_state_and_the_deletion_of_each_object_are_handled(by_key in any::<bool>(), steps in steps()) {
        let world = run(by_key, &steps);
        for last in world.last() {
            prop_assert!(world.is_handled(last), "{last} is lost: handled {:?}", world.handled);
        }
    }

    #[test]
    fn an_event_is_left_out_only_for_a_newer_one_of_its_object(by_key in any::<bool>(), steps in steps()) {
        let world = run(by_key, &steps);
        for event in watched(&steps) {
            let newer = |other: &TestMessage| {
                let cancels = other.change() == Change::Deleted
                    || event.change() == Change::Modified && other.change() == Change::Modified;
                other.uid() == event.uid() && other.version > event.version && cancels
            };
            let attempted = world.attempted.iter().any(|attempted| attempted.version == event.version);
            prop_assert!(attempted || watched(&steps).any(|other| newer(&other)), "{event} is never handled");
        }
    }

    #[test]
    fn the_events_of_an_object_are_first_handled_in_order(by_key in any::<bool>(), steps in steps()) {
        let world = run(by_key, &steps);
        for uid in ["a", "b", "c"] {
            let of_object = |message: &&TestMessage| message.uid() == uid && !message.is_trigger();
            let versions: Vec<_> = world.attempted.iter().filter(of_object).map(|message| message.version).collect();
            prop_assert!(versions.is_sorted(), "{versions:?}");
        }
    }

    #[test]
    fn an_object_that_exists_again_is_not_released_after_that(by_key in any::<bool>(), steps in steps()) {
        let world = run(by_key, &steps);
        for last in world.last().filter(|last| last.change() == Change::Added) {
            let added = world.handled.iter().position(|(_, message)| message.version == last.version);
            let released_later = |added: usize| {
                let later = world.handled[added + 1..].iter().map(|(_, message)| message);
                later.filter(|message| message.uid() == last.uid()).any(|message| message.change() == Change::Deleted)
            };
            prop_assert!(!added.is_some_and(released_later), "{last} is released: {:?}", world.handled);
        }
    }
}
