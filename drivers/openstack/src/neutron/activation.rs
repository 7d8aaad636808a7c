//! The activation of ports. One request polls the status of all ports for which callers wait, and a port that stays DOWN is repaired.

use std::time::Duration;

use staffetta_driver::VifId;
use tokio::time::Instant;

use super::api::NeutronApi;
use super::ownership::READ_STATUS;
use super::translate::BindingStatus;
use super::wire::PortBody;
use crate::error::DriverResult;
use crate::poll::{Pacing, PollEntry, PollState, Poller};

/// The fields that are polled for a port that Neutron binds itself.
pub(crate) const BOUND_FIELDS: &str = "id status binding:vif_type";
/// The fields that are polled for a subport. They do not contain the binding: Neutron binds a subport whenever its node attaches it, so a
/// failed binding does not end the wait.
pub(crate) const SUBPORT_FIELDS: &str = "id status";

/// The delay before the first poll of a created or changed port, and the shortest interval between two polls of it.
pub(crate) const MIN_INTERVAL: Duration = PortPacing::MIN_INTERVAL;
/// The pause after a poll of several ports lasts this many times as long as the poll.
const PAUSE_FACTOR: u32 = 2;
/// A subport that stays DOWN is removed from its trunk and added again after each interval of this length.
const REDO_INTERVAL: Duration = Duration::from_secs(90);

/// Waits for ports to become ACTIVE, by polling their status. The driver `neutron-vif` has one for the ports that Neutron binds, and the
/// driver `nested-vlan` has one for subports.
#[derive(Debug)]
pub(crate) struct Activations {
    neutron: NeutronApi,
    fields: &'static str,
    poller: Poller<VifId, PortPacing>,
}

/// The repair of a port that stays DOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// No repair is to be made now.
    None,
    /// Complete the attachment of the port to its node, in case it was interrupted.
    Complete,
    /// Detach the port from its node and attach it again.
    Redo,
}

/// A final status of a port, which ends the wait for its activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationOutcome {
    /// The port is ACTIVE: its traffic is forwarded.
    Active,
    /// Neutron could not bind the port. Never the case for subports, whose binding is not polled.
    BindingFailed,
    /// The port does not exist.
    Missing,
}

/// The progress of the repairs of a port that stays DOWN.
#[derive(Debug, Default)]
pub(crate) struct RepairState {
    /// The number of intervals of [`REDO_INTERVAL`] that had passed since the start of the wait when the port was last attached again; 0
    /// before that.
    redone: u32,
    /// `true` if this process attached the port completely and completed its last repair.
    complete: bool,
}

/// The pauses after polls of several ports, so that polls do not delay the creation of ports. In spite of a pause, a port is polled as soon
/// as a quarter of the time from the start of its activation to the start of the pause (from 50 ms to 10 s) has passed since its last poll.
#[derive(Debug, Default)]
pub(crate) struct PortPacing {
    /// The start and the end of the last pause between polls; `None` before the first.
    rest: Option<(Instant, Instant)>,
}

impl Pacing for PortPacing {
    type Status = ActivationOutcome;
    type Context = RepairState;
    const MISSING: ActivationOutcome = ActivationOutcome::Missing;
    const MIN_INTERVAL: Duration = Duration::from_millis(50);
    const INTEREST: Duration = Duration::from_secs(30);

    fn polled(&mut self, count: usize, started: Instant, ended: Instant) {
        if count > 1 {
            self.rest = Some((ended, ended + ended.saturating_duration_since(started) * PAUSE_FACTOR));
        }
    }

    fn not_before(&self, entry: &PollEntry<Self>, _: Instant) -> Option<Instant> {
        self.rest.map(|(since, until)| until.min(entry.due_at(since)))
    }
}

impl Activations {
    /// Creates the poller. `fields` are the fields that it reads of each port: [`BOUND_FIELDS`] or [`SUBPORT_FIELDS`].
    pub(crate) fn new(neutron: NeutronApi, fields: &'static str) -> Self {
        Self { neutron, fields, poller: Poller::default() }
    }

    /// Records that this process just attached a port to its node, and that callers wait for its activation from now on.
    pub(crate) fn start(&self, id: &VifId) {
        let context = RepairState { redone: 0, complete: true };
        self.poller.schedule().start(id, context, Instant::now());
    }

    /// Ends the wait for the activation of a port, and forgets its repairs.
    pub(crate) fn forget(&self, id: &VifId) {
        self.poller.schedule().forget(id);
    }

    /// Records that the last repair of a port was completed. Does nothing if no caller waits for the activation of the port.
    pub(crate) fn set_repaired(&self, id: &VifId) {
        if let Some(state) = self.poller.schedule().context_mut(id) {
            state.complete = true;
        }
    }

    /// Returns the state of the activation of a port: its final status, or the time until the next poll. If it is time for a poll, reads
    /// the status from Neutron first.
    pub(crate) async fn state(&self, id: &VifId) -> DriverResult<PollState<ActivationOutcome>> {
        let fetch = |ids: Vec<VifId>| async move {
            let ports = self.neutron.ports_by_id(READ_STATUS, &ids, self.fields).await?;
            Ok(ports.into_iter().map(|port| (port.id.clone(), outcome(&port))).collect())
        };
        self.poller.state(id, fetch).await
    }

    /// Returns the repair that the caller should make now for a port that has been DOWN for `waited`, and records its start. Returns
    /// [`Repair::None`] too if no caller waits for the activation of the port.
    pub(crate) fn next_repair(&self, id: &VifId, waited: Duration) -> Repair {
        self.poller.schedule().context_mut(id).map_or(Repair::None, |state| state.next(waited))
    }
}

impl RepairState {
    /// Returns the repair that is due for a port that has been DOWN for `waited`, and records its start. Until
    /// [`Activations::set_repaired`] records the repair as complete, later calls within the same interval return [`Repair::Complete`],
    /// because the repair may have failed or have been interrupted.
    fn next(&mut self, waited: Duration) -> Repair {
        let intervals = u32::try_from(waited.as_secs() / REDO_INTERVAL.as_secs()).unwrap_or(u32::MAX);
        if intervals > self.redone {
            (self.redone, self.complete) = (intervals, false);
            Repair::Redo
        } else if self.complete {
            Repair::None
        } else {
            Repair::Complete
        }
    }
}

/// Returns the outcome of the activation of a port, or `None` while it may still succeed.
fn outcome(port: &PortBody) -> Option<ActivationOutcome> {
    if port.is_active() {
        Some(ActivationOutcome::Active)
    } else {
        (BindingStatus::of(port) == BindingStatus::Failed).then_some(ActivationOutcome::BindingFailed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::poll::{MAX_INTERVAL, PollSchedule};

    type Schedule = PollSchedule<VifId, PortPacing>;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn id(name: &str) -> VifId {
        name.into()
    }

    #[test]
    fn after_a_poll_of_several_ports_none_is_polled_for_twice_its_duration_or_a_quarter_of_the_wait() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for name in ["a", "b"] {
            schedule.start(&id(name), RepairState::default(), now);
        }
        let started = now + milliseconds(1000);
        let mut poll = |names: &[&str], duration| {
            let ended = started + milliseconds(duration);
            schedule.record(names.iter().map(|name| (id(name), None)), started, ended);
            let PollState::Pending { poll_after, .. } = schedule.state_after_poll(&id("a"), ended) else {
                panic!()
            };
            poll_after.as_millis()
        };
        assert_eq!(poll(&["a"], 100), 150, "a quarter of a second since the poll began");
        assert_eq!(
            poll(&["a", "b"], 85),
            170,
            "until 1255, and a quarter of 1085 after the poll began is 1271"
        );
        assert_eq!(poll(&["a", "b"], 10), 240, "an interval is not shortened");
        assert_eq!(poll(&["a", "b"], 200), 100, "a quarter of 1200 after the poll began");
        assert_eq!(poll(&["a", "b"], 900), 50, "the poll took longer than that");
    }

    #[test]
    fn each_repair_of_a_port_that_stays_down_is_due_once() {
        let mut new = RepairState { redone: 0, complete: true };
        let mut old = RepairState::default();
        let seconds = Duration::from_secs;
        assert_eq!((new.next(seconds(1)), new.next(seconds(89))), (Repair::None, Repair::None));
        assert_eq!(old.next(seconds(1)), Repair::Complete);
        for state in [&mut new, &mut old] {
            for (waited, repair) in [
                (2, Repair::None),
                (90, Repair::Redo),
                (91, Repair::None),
                (181, Repair::Redo),
                (182, Repair::None),
            ] {
                state.complete = true;
                assert_eq!(state.next(seconds(waited)), repair, "after {waited} s");
            }
        }
    }

    #[test]
    fn an_interrupted_repair_is_completed_by_the_next_caller() {
        let mut state = RepairState { redone: 0, complete: true };
        let waited = Duration::from_secs(90);
        assert_eq!(state.next(waited), Repair::Redo);
        for _ in 0..2 {
            assert_eq!(state.next(waited), Repair::Complete);
        }
        state.complete = true;
        assert_eq!(state.next(waited), Repair::None);
    }

    proptest! {
        /// Callers ask again after the returned delay. Neutron sets each port ACTIVE at some time, and responds with the status at the
        /// start of a poll. At most one poll is in flight.
        #[test]
        fn each_port_is_seen_active_within_an_interval_and_polls_are_shared(
            actives in prop::collection::vec(1..30_000_u64, 1..20),
            took in prop_oneof![Just(0), 1..3_000_u64],
        ) {
            let took = milliseconds(took);
            let (mut schedule, start) = (Schedule::default(), Instant::now());
            let name = |number: usize| id(&number.to_string());
            let mut waiting: Vec<(Instant, usize)> = (0..actives.len()).map(|number| (start, number)).collect();
            let (mut polls, mut busy) = (0_u64, start);
            (0..actives.len()).for_each(|number| schedule.start(&name(number), RepairState::default(), start));
            while let Some((at, number)) = waiting.iter().min().copied() {
                waiting.retain(|waits| *waits != (at, number));
                let (now, state) = match schedule.state(&name(number), at) {
                    Some(state) => (at, state),
                    None if at < busy => {
                        waiting.push((busy, number));
                        continue;
                    }
                    None => {
                        polls += 1;
                        busy = at + took;
                        let results: Vec<_> = schedule.batch(&[name(number)], at).into_iter().map(|id| {
                            let active = start + milliseconds(actives[id.as_str().parse::<usize>().unwrap()]);
                            (id, (active <= at).then_some(ActivationOutcome::Active))
                        }).collect();
                        schedule.record(results, at, busy);
                        (busy, schedule.state_after_poll(&name(number), busy))
                    }
                };
                match state {
                    PollState::Final(ActivationOutcome::Active) => {
                        let late = now - (start + milliseconds(actives[number]));
                        let interval = ((now - start) / 4).clamp(MIN_INTERVAL, MAX_INTERVAL);
                        // One poll, and the rest of the one that was in flight.
                        prop_assert!(late <= interval.max(interval / 2 + took) + took, "{late:?} late, after {:?}", now - start);
                    }
                    PollState::Pending { poll_after, .. } => waiting.push((now + poll_after, number)),
                    PollState::Final(other) => prop_assert!(false, "{other:?}"),
                }
            }
            // A single port takes 41 polls in half a minute; half of the intervals are shortened by others.
            prop_assert!(polls <= 90, "{polls} polls");
        }
    }
}
