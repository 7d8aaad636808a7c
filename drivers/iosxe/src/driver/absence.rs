//! Applications that vanish from the responses of the device without an uninstall by this process. Their state is
//! unknown until the device has proven their absence: one response without an application proves nothing.

use std::collections::HashMap;
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

/// The applications of the last read of the device, and those that have vanished from its responses. A vanished application counts as
/// present until enough reads have proven its absence.
#[derive(Default)]
pub(super) struct Absences {
    /// The sequence number of the last read, and the state of the device that was returned for it, with the vanished applications.
    last: Option<(u64, Arc<Observed>)>,
    vanished: HashMap<String, Absence>,
}

/// The progress of the proof that a vanished application is absent.
#[derive(Clone, Copy)]
struct Absence {
    /// The time of the first read of the device that did not return the application.
    since: Instant,
    /// The time of the first of the consecutive reads of the device that count as proof, and their number; `None` if the last read does
    /// not count.
    proof: Option<(Instant, u32)>,
}

impl Absences {
    /// Returns `true` if an application has vanished and its absence is not proven yet.
    pub(super) fn any(&self) -> bool {
        !self.vanished.is_empty()
    }

    /// Returns the state `observed` of the device, from its read with the sequence number `number`, together with the vanished
    /// applications. An application is omitted if its disappearance `is_explained`, or if [`READS_TO_PROVE`] reads, over at least the time
    /// `patience`, have proven its absence. After `patience`, its last known state is not reported any more.
    pub(super) fn complete(
        &mut self,
        number: u64,
        observed: &Arc<Observed>,
        is_explained: impl Fn(&ObservedApp) -> bool,
        patience: Duration,
    ) -> Arc<Observed> {
        if let Some((_, last)) = self.last.as_ref().filter(|(last, _)| *last == number) {
            return Arc::clone(last);
        }
        let now = Instant::now();
        let before = self.last.take();
        let mut absences = HashMap::new();
        let mut vanished = Vec::new();
        for app in before.iter().flat_map(|(_, before)| before.apps.values()).filter(|app| app.is_there()) {
            if observed.apps.get(&app.id).is_some_and(ObservedApp::is_there) || is_explained(app) {
                continue;
            }
            let known = self.vanished.get(&app.id).copied();
            let absence = known.unwrap_or(Absence { since: now, proof: None }).read(observed.served, now);
            if !absence.is_proven(patience, now) {
                vanished.push(app.vanished_at(absence.since, now >= absence.since + patience));
                absences.insert(app.id.clone(), absence);
            }
        }
        self.vanished = absences;
        let mut observed = Arc::clone(observed);
        if !vanished.is_empty() {
            let apps = &mut Arc::make_mut(&mut observed).apps;
            apps.extend(vanished.into_iter().map(|app| (app.id.clone(), app)));
        }
        self.last = Some((number, Arc::clone(&observed)));
        observed
    }
}

impl Absence {
    /// Returns the progress of the proof after a further read of the device without the application. If `served` is `false`, the device did
    /// not serve its list of applications, and the proof starts anew.
    fn read(self, served: bool, now: Instant) -> Self {
        let (since, reads) = self.proof.unwrap_or((now, 0));
        Self { proof: served.then_some((since, reads + 1)), ..self }
    }

    /// Returns `true` if enough reads, over a long enough time, have proven the absence.
    fn is_proven(&self, patience: Duration, now: Instant) -> bool {
        self.proof.is_some_and(|(since, reads)| reads >= READS_TO_PROVE && now >= since + patience)
    }
}

/// Returns the progress of a pod with the container `name`, whose application vanished at `since`: the pod waits, and counts as failing
/// after `patience`, or at once if IOx is disabled.
pub(super) fn waits(observed: &Observed, name: &str, since: Instant, patience: Duration) -> PodProgress {
    if observed.enabled == Some(false) || since.elapsed() >= patience {
        return not_listed(observed);
    }
    PodProgress::Working {
        state: format!("{name}: the device does not list the app at the moment"),
        poll_after: patience / READS_TO_PROVE,
    }
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
