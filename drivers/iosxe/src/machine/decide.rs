//! The decision.

use std::time::Duration;

use tokio::time::Instant;

use super::act::{Act, LONGEST_PAUSE, Patience};
use super::flash::fetch;
use super::package::Package;
use super::state::AppState;
use super::track::{Sort, Track};

/// When it is worth looking again while something happens on the device.
pub(crate) const POLL: Duration = Duration::from_millis(300);

/// When it is worth looking again while the device is in a state that nobody expects.
const SLOW: Duration = Duration::from_secs(5);

/// How often a device may be busy in a row before that counts as a failure.
const MOMENTS: u32 = 5;

/// What is there of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) configured: Configured,
    pub(crate) state: AppState,
    /// The state in the device's own word.
    pub(crate) said: &'a str,
    pub(crate) package: Package,
    /// Another application that is being installed: a device that installs two at a time may lose one without a word.
    pub(crate) busy: Option<Busy<'a>>,
    /// Another application whose package is being copied to the flash: one at a time is enough for a device.
    pub(crate) copying: Option<&'a str>,
}

/// Another application that is being installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy<'a> {
    pub(crate) app: &'a str,
    pub(crate) since: Instant,
}

/// Whether an application is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Configured {
    No,
    /// As it is wanted.
    Yes,
    /// In another form than the one that is wanted.
    Otherwise,
}

/// Where an application is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    Running {
        /// Whether it is started again when it ended.
        ended: bool,
        /// Whether it is tried again when the device gave up.
        failed: bool,
    },
    Gone,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing: it is where it is to get.
    Done,
    /// This step, and then look again.
    Do(Act),
    /// Look again later.
    Wait { state: String, ask_again: Duration },
    /// Something is wrong; look again later.
    Fail { reason: &'static str, message: String, ask_again: Duration },
}

/// What to do next with an application.
///
/// * From every state it leads to the goal, on a device that does what it is told, one step at a time.
/// * No step is taken twice within its limit while nothing changed; one that the device refused waits for a pause that
///   doubles. What ends or fails again and again is left alone for as long.
/// * A state that it does not know it leaves alone.
pub(crate) fn decide(
    view: View<'_>,
    goal: Goal,
    track: &Track,
    patience: Patience,
    now: Instant,
) -> Decision {
    let next = match (goal, view.configured) {
        (Goal::Running { ended, failed }, Configured::Yes) => up(view, (ended, failed), track, patience, now),
        (Goal::Running { .. }, Configured::No) => Next::Act(Act::Configure),
        (Goal::Running { .. }, Configured::Otherwise) | (Goal::Gone, _) => down(view, track, patience, now),
    };
    match next {
        Next::Done => Decision::Done,
        Next::Pause(reason, until) => {
            let told = track.reason().map(|told| format!(": {told}")).unwrap_or_default();
            let (message, ask_again) = (format!("the device says {}{told}", view.said), until - now);
            Decision::Fail { reason, message, ask_again }
        }
        Next::Wait => wait(view, track, patience, now),
        Next::Act(act) => spaced(act, view, track, patience, now),
    }
}

enum Next {
    Done,
    Act(Act),
    Wait,
    /// It ended or failed, which has this reason; it is tried again then.
    Pause(&'static str, Instant),
}

/// The way to an application that runs.
fn up(
    view: View<'_>,
    (ended, failed): (bool, bool),
    track: &Track,
    patience: Patience,
    now: Instant,
) -> Next {
    match view.state {
        AppState::Absent => Next::Act(fetch(view.package, track)),
        AppState::Deployed => Next::Act(Act::Activate),
        AppState::Activated => Next::Act(Act::Start),
        AppState::Stopped if ended => after_a_pause("CrashLoopBackOff", track.ended, Act::Start, track, now),
        AppState::Running | AppState::Stopped => Next::Done,
        AppState::Failed if !failed => Next::Done,
        AppState::Failed => after_a_pause("AppFailed", track.failures, clear(track), track, now),
        // It is tried again; a device that hangs on a URL is given the package in another way.
        AppState::Installing if hangs(track, patience, now) => Next::Act(Act::Uninstall),
        AppState::Installing | AppState::Unknown => Next::Wait,
    }
}

/// What is done with an application that ended or failed for the `times`th time, once it was left alone for a while.
fn after_a_pause(reason: &'static str, times: u32, act: Act, track: &Track, now: Instant) -> Next {
    let until = track.since() + if times == 0 { Duration::ZERO } else { Patience::pause(times) };
    if now < until { Next::Pause(reason, until) } else { Next::Act(act) }
}

/// The way to a device without the application.
fn down(view: View<'_>, track: &Track, patience: Patience, now: Instant) -> Next {
    match view.state {
        AppState::Running => Next::Act(Act::Stop),
        AppState::Stopped | AppState::Activated => Next::Act(Act::Deactivate),
        AppState::Deployed => Next::Act(Act::Uninstall),
        AppState::Failed => Next::Act(clear(track)),
        // An install that hangs is ended by an uninstall; one that goes on is left to its end.
        AppState::Installing if hangs(track, patience, now) => Next::Act(Act::Uninstall),
        AppState::Installing | AppState::Unknown => Next::Wait,
        // What was accepted a moment ago may still come: its configuration stays until then.
        AppState::Absent
            if track.installs(now) && now < track.waiting_since(Act::Install) + patience.step =>
        {
            Next::Wait
        }
        // A copy that is being made is left to its end, so that none is made after it was deleted.
        AppState::Absent if track.is_copying() => Next::Wait,
        AppState::Absent if view.package == Package::Copied && !track.is_discarded(patience) => {
            Next::Act(Act::Discard)
        }
        AppState::Absent if view.configured == Configured::No => Next::Done,
        AppState::Absent => Next::Act(Act::Remove),
    }
}

/// Whether an install takes longer than it may.
fn hangs(track: &Track, patience: Patience, now: Instant) -> bool {
    now >= track.waiting_since(Act::Install) + patience.install
}

/// What takes a failed application away. It depends on where it failed, which the device does not say: by turns.
fn clear(track: &Track) -> Act {
    let tries = |act| track.attempt(act).map_or(0, |attempt| attempt.tries);
    if tries(Act::Uninstall) > tries(Act::Deactivate) { Act::Deactivate } else { Act::Uninstall }
}

/// Something happens on the device, and takes its time.
fn wait(view: View<'_>, track: &Track, patience: Patience, now: Instant) -> Decision {
    let state = format!("the device says {}", view.said);
    if track.is_copying() {
        return Decision::Wait { state: Act::Copy.doing().to_owned(), ask_again: POLL };
    }
    // An install that takes too long is ended before anybody waits for it here.
    if view.state != AppState::Unknown {
        return Decision::Wait { state, ask_again: POLL };
    }
    if now < track.waiting_since(Act::Install) + patience.step {
        return Decision::Wait { state, ask_again: SLOW };
    }
    let message = format!("{state} for more than {} s", patience.step.as_secs());
    Decision::Fail { reason: "UnknownState", message, ask_again: SLOW }
}

/// How long to wait for a device that is busy for the `tries`th time.
fn moment(tries: u32) -> Duration {
    POLL.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(Patience::pause(tries))
}

/// Waits for an install. One of somebody else may never end: that is told, and looked at the more seldom the longer it takes.
fn behind(other: Busy<'_>, patience: Patience, now: Instant) -> Decision {
    let (state, limit) = (format!("waits until {} is installed", other.app), patience.longest_install());
    let overdue = now.saturating_duration_since(other.since + limit);
    if overdue.is_zero() {
        return Decision::Wait { state, ask_again: POLL };
    }
    let message = format!("{state}, which takes longer than {} s", limit.as_secs());
    Decision::Fail { reason: Act::Install.failed(), message, ask_again: overdue.clamp(SLOW, LONGEST_PAUSE) }
}

/// The step, unless it was tried too short a time ago.
fn spaced(act: Act, view: View<'_>, track: &Track, patience: Patience, now: Instant) -> Decision {
    if let Some(attempt) = track.attempt(act) {
        if let Some(refusal) = &attempt.refusal {
            let busy = refusal.sort == Sort::Busy;
            let until =
                refusal.at + if busy { moment(attempt.tries) } else { Patience::pause(attempt.tries) };
            if now < until && busy && attempt.tries <= MOMENTS {
                let state = format!("{}; the device is busy: {}", act.doing(), refusal.said);
                return Decision::Wait { state, ask_again: until - now };
            }
            if now < until {
                let (message, ask_again) = (refusal.said.clone(), until - now);
                return Decision::Fail { reason: act.failed(), message, ask_again };
            }
        } else if now < attempt.until {
            let state = format!("{}; the device says {}", act.doing(), view.said);
            if attempt.tries > 1 {
                let message = format!("{state}; it was tried {} times", attempt.tries);
                let ask_again = SLOW.min(attempt.until - now);
                return Decision::Fail { reason: act.failed(), message, ask_again };
            }
            return Decision::Wait { state, ask_again: POLL };
        }
    }
    match view.busy {
        Some(other) if act == Act::Install => behind(other, patience, now),
        _ if act == Act::Copy && view.copying.is_some() => Decision::Wait {
            state: format!("waits until {} is copied", view.copying.unwrap_or_default()),
            ask_again: POLL,
        },
        _ => Decision::Do(act),
    }
}
