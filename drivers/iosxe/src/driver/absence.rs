//! Applications that vanish from the responses of the device, which are its configuration and its operational data, although this process
//! has not removed them, and those that the status of a pod shows and the device does not. One response without an application proves
//! nothing, and neither do the first ones that a new process reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::virtual_node::PodProgress;
use tokio::time::Instant;

use crate::observe::{Observed, ObservedApp};

/// The number of consecutive reads of the device without an application that prove its absence. The device must serve its list
/// of applications in each of them.
const READS_TO_PROVE: u32 = 3;

/// The delay before the next read of the device while app hosting is disabled on it.
const DISABLED_POLL: Duration = Duration::from_secs(30);

/// The applications of the last read of the device, and those of which its responses lack a part: the state, or the configuration. What is
/// lacking counts as present until enough reads have proven its absence.
#[derive(Default)]
pub(super) struct Absences {
    /// The sequence number of the last read, and the state of the device that was returned for it, with what it lacked.
    last: Option<(u64, Arc<Observed>)>,
    /// The operational data, with the states of the applications.
    states: ReadPart,
    /// The configuration, with the ownership marks and the static addresses.
    configuration: ReadPart,
}

/// The absences in one of the two parts of the device's data, which are read separately.
#[derive(Default)]
struct ReadPart {
    /// The sequence number of the last read of this part.
    number: u64,
    /// The proof that an application which this part never had is absent from it; `None` before the first read.
    unseen: Option<Absence>,
    /// The applications that this part had and lacks now.
    missing: HashMap<String, Absence>,
}

/// The progress of the proof that an application is absent.
#[derive(Clone, Copy)]
struct Absence {
    /// The time of the first read of the device that did not return the application.
    since: Instant,
    /// The times of the first and the last of the consecutive reads of the device that count as proof, and their number; `None` if the last
    /// read does not count.
    proof: Option<(Instant, Instant, u32)>,
}

/// The disappearances that have a known cause.
pub(super) struct Explained<S, C> {
    /// Returns `true` if the state of the application was to disappear.
    pub(super) state: S,
    /// Returns `true` if the configuration of the application was to disappear.
    pub(super) configuration: C,
}

impl Absences {
    /// Returns `true` if the operational data must be read completely, because only the complete data show whether the device lists its
    /// applications at all.
    pub(super) fn need_complete_data(&self, patience: Duration) -> bool {
        !self.states.missing.is_empty() || self.states.is_new(patience)
    }

    /// Returns `true` if the configuration must be read even if it is cached: it lacks an application, or, where addresses are assigned
    /// from it, it has not been read often enough. With `is_complete`, the latter does not matter.
    pub(super) fn need_configuration(&self, is_complete: bool, patience: Duration) -> bool {
        !self.configuration.missing.is_empty() || (!is_complete && self.configuration.is_new(patience))
    }

    /// Returns the state `observed` of the device, from the reads of its states and its configuration with these sequence `numbers`,
    /// together with what it lacks of the applications of the last read and of the `expected` ones. A part of an application is omitted if
    /// its disappearance is `explained`, or if [`READS_TO_PROVE`] reads, over at least the time `patience`, have proven its absence. After
    /// `patience`, its last known state is not reported any more.
    pub(super) fn complete(
        &mut self,
        (number, configuration_number): (u64, u64),
        observed: &Arc<Observed>,
        expected: &[ObservedApp],
        explained: &Explained<impl Fn(&ObservedApp) -> bool, impl Fn(&ObservedApp) -> bool>,
        patience: Duration,
    ) -> Arc<Observed> {
        if let Some((_, last)) = self.last.as_ref().filter(|(last, _)| *last == number) {
            return Arc::clone(last);
        }
        let now = Instant::now();
        let before = self.last.take().map(|(_, before)| before).unwrap_or_default();
        let mut states = self.states.next(number, observed.served, patience, now);
        let mut configuration = self.configuration.next(configuration_number, true, patience, now);
        let mut completed = Vec::new();
        // What a status shows of an application says more than a read without its mark, and its state more than the first reads without one.
        let by_status =
            |app: &ObservedApp| match before.apps.get(&app.id).filter(|known| known.mark.is_some()) {
                None => Some(app.clone()),
                Some(known) if known.is_there() || !self.states.is_new(patience) => None,
                Some(known) => {
                    let (state, device_text) = (app.state, app.device_text.clone());
                    Some(ObservedApp { state, device_text, ..known.clone() })
                }
            };
        let expected: BTreeMap<_, _> =
            expected.iter().filter_map(|app| Some((&app.id, by_status(app)?))).collect();
        let known = before.apps.values().filter(|app| !expected.contains_key(&app.id));
        for app in known.chain(expected.values()) {
            let shown = observed.apps.get(&app.id);
            let lost_state = app.is_there() && !shown.is_some_and(ObservedApp::is_there);
            let lost_configuration = (app.configured && !shown.is_some_and(|shown| shown.configured))
                || (app.mark.is_some() && shown.is_none_or(|shown| shown.mark.is_none()));
            let vanished = (lost_state && !(explained.state)(app))
                .then(|| states.unproven(&app.id, (&self.states, observed.served), patience, now))
                .flatten();
            let unconfigured = (lost_configuration && !(explained.configuration)(app))
                .then(|| {
                    let unproven =
                        configuration.unproven(&app.id, (&self.configuration, true), patience, now);
                    // An application that the device hides still belongs to its pod.
                    unproven.or(vanished)
                })
                .flatten();
            if vanished.is_some() || unconfigured.is_some() {
                let is_long_ago = vanished.is_some_and(|since| now >= since + patience);
                completed.push(app.completing(shown, (vanished, is_long_ago), unconfigured));
            }
        }
        (self.states, self.configuration) = (states, configuration);
        let mut observed = Arc::clone(observed);
        let uncertain = (self.states.is_new(patience), self.configuration.is_new(patience));
        if !completed.is_empty() || uncertain != (false, false) {
            let observed = Arc::make_mut(&mut observed);
            observed.apps.extend(completed.into_iter().map(|app| (app.id.clone(), app)));
            (observed.apps_uncertain, observed.configuration_uncertain) = uncertain;
        }
        self.last = Some((number, Arc::clone(&observed)));
        observed
    }
}

impl ReadPart {
    /// Returns this part after the read with the sequence `number`, without missing applications so far. `served` is `false` if the read
    /// returned no list of applications.
    fn next(&self, number: u64, served: bool, patience: Duration, now: Instant) -> Self {
        let unseen = self.unseen.unwrap_or(Absence { since: now, proof: None });
        let counts = number != self.number && !unseen.is_proven(patience);
        let unseen = if counts { unseen.read(served, now) } else { unseen };
        Self { number, unseen: Some(unseen), missing: HashMap::new() }
    }

    /// Returns `true` if this part was not read often enough to prove that an application which it never had is absent.
    fn is_new(&self, patience: Duration) -> bool {
        !self.unseen.is_some_and(|unseen| unseen.is_proven(patience))
    }

    /// Records that this part lacks the application `id`. Returns the time since which it does, or `None` if its absence is proven.
    /// `before` is this part before its last read, which `served` the list of applications.
    fn unproven(
        &mut self,
        id: &str,
        (before, served): (&Self, bool),
        patience: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let absence = match before.missing.get(id) {
            Some(known) if self.number == before.number => *known,
            known => known.copied().unwrap_or(Absence { since: now, proof: None }).read(served, now),
        };
        (!absence.is_proven(patience)).then(|| {
            self.missing.insert(id.to_owned(), absence);
            absence.since
        })
    }
}

impl Absence {
    /// Returns the progress of the proof after a further read of the device without the application. If `served` is `false`, the device did
    /// not serve its list of applications, and the proof starts anew.
    fn read(self, served: bool, now: Instant) -> Self {
        let (since, _, reads) = self.proof.unwrap_or((now, now, 0));
        Self { proof: served.then_some((since, now, reads + 1)), ..self }
    }

    /// Returns `true` if enough reads, over a long enough time, have proven the absence.
    fn is_proven(&self, patience: Duration) -> bool {
        self.proof.is_some_and(|(first, last, reads)| reads >= READS_TO_PROVE && last >= first + patience)
    }
}

/// Returns the progress of a pod with the container `name`, of whose application `app` the last read lacks a part: the pod waits. It counts
/// as failing if the state is lacking for `patience`, or at once if IOx is disabled. `None` if nothing is lacking.
pub(super) fn waits(
    observed: &Observed,
    app: &ObservedApp,
    name: &str,
    patience: Duration,
) -> Option<PodProgress> {
    let lacks = match (app.vanished, app.unconfigured) {
        (Some(since), _) if observed.enabled == Some(false) || since.elapsed() >= patience => {
            return Some(not_listed(observed));
        }
        (Some(_), _) => "list the app",
        (None, Some(_)) => "show the configuration of the app",
        (None, None) => return None,
    };
    Some(looks_again(&format!("{name}: the device does not {lacks} at the moment"), patience))
}

/// Returns the progress of a pod for which the device is read again, because one read proves nothing.
pub(super) fn looks_again(state: &str, patience: Duration) -> PodProgress {
    PodProgress::Working { state: state.to_owned(), poll_after: patience / READS_TO_PROVE }
}

/// Returns the progress of a pod while the device does not list its applications: a failure with a hint that IOx must be enabled.
pub(super) fn not_listed(observed: &Observed) -> PodProgress {
    let message = if observed.enabled == Some(false) {
        "IOx is not enabled on the device"
    } else {
        "the device does not list its apps; check that IOx is enabled"
    };
    PodProgress::Failing {
        reason: "AppHostingDisabled".into(),
        message: message.into(),
        poll_after: DISABLED_POLL,
    }
}
