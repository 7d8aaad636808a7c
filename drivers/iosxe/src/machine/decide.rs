//! Decides the next step of an application.

use std::time::Duration;

use tokio::time::Instant;

use super::act::{AppStep, LONGEST_PAUSE, Package, StepLimits};
use super::flash::fetch;
use super::state::AppState;
use super::track::{AppRecord, RefusalKind};

/// The delay before the next read while an operation is in progress.
pub(crate) const POLL: Duration = Duration::from_millis(300);

/// The delay before the next read while the device reports an unknown state.
const SLOW: Duration = Duration::from_secs(5);

/// The number of consecutive busy answers that count as a failure.
const BUSY_RETRIES: u32 = 5;

/// The observed state of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppView<'a> {
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

/// The configuration of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Configured {
    No,
    /// As it is wanted.
    Yes,
    /// In another form than the one that is wanted.
    Otherwise,
}

/// The target state of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    Running {
        /// `true` if it is restarted after it exited.
        ended: bool,
        /// `true` if it is retried after the device gave up.
        failed: bool,
    },
    Gone,
}

/// The next action for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing to do: the goal is reached.
    Done,
    /// Take this step, then read the device again.
    Do(AppStep),
    /// Read the device again later.
    Wait { state: String, poll_after: Duration },
    /// Report a failure, and read the device again later.
    Fail { reason: &'static str, message: String, poll_after: Duration },
}

/// Decides the next action for an application.
///
/// * From every state it leads to the goal, on a device that carries out its steps, one step at a time.
/// * No step is taken twice within its limit while nothing changed; one that the device refused waits for a pause that
///   doubles. What ends or fails again and again is left alone for as long.
/// * A state that it does not know it leaves alone.
pub(crate) fn decide(
    view: AppView<'_>,
    goal: Goal,
    track: &AppRecord,
    limits: StepLimits,
    now: Instant,
) -> Decision {
    let gone = || towards_gone(view, track, limits, now);
    let next = match (goal, view.configured) {
        (Goal::Running { ended, failed }, Configured::Yes) => {
            towards_running(view, (ended, failed), track, limits, now)
        }
        (Goal::Running { .. }, Configured::No) => Next::AppStep(AppStep::Configure),
        (Goal::Running { .. }, Configured::Otherwise) | (Goal::Gone, _) => gone(),
    };
    match next {
        Next::Done => Decision::Done,
        Next::Pause(reason, until) => {
            let reported = track.reason().map(|reported| format!(": {reported}")).unwrap_or_default();
            let (message, poll_after) = (format!("the device reports {}{reported}", view.said), until - now);
            Decision::Fail { reason, message, poll_after }
        }
        Next::Wait => wait(view, track, limits, now),
        Next::AppStep(act) => unless_tried_recently(act, view, track, limits, now),
    }
}

enum Next {
    Done,
    AppStep(AppStep),
    Wait,
    /// It ended or failed, which has this reason; it is tried again then.
    Pause(&'static str, Instant),
}

/// Decides the next step towards an application that runs.
fn towards_running(
    view: AppView<'_>,
    (ended, failed): (bool, bool),
    track: &AppRecord,
    limits: StepLimits,
    now: Instant,
) -> Next {
    match view.state {
        AppState::Absent => Next::AppStep(fetch(view.package, track)),
        AppState::Deployed => Next::AppStep(AppStep::Activate),
        AppState::Activated => Next::AppStep(AppStep::Start),
        AppState::Stopped if ended => {
            after_back_off("CrashLoopBackOff", track.ended, AppStep::Start, track, now)
        }
        AppState::Running | AppState::Stopped => Next::Done,
        AppState::Failed if !failed => Next::Done,
        AppState::Failed => after_back_off("AppFailed", track.failures, removal_step(track), track, now),
        // It is tried again; a device that hangs on a URL is given the package in another way.
        AppState::Installing if hangs(track, limits, now) => Next::AppStep(AppStep::Uninstall),
        AppState::Installing | AppState::Unknown => Next::Wait,
    }
}

/// Acts on an application that ended or failed for the `times`th time, after a back-off.
fn after_back_off(reason: &'static str, times: u32, act: AppStep, track: &AppRecord, now: Instant) -> Next {
    let until = track.since() + if times == 0 { Duration::ZERO } else { StepLimits::pause(times) };
    if now < until { Next::Pause(reason, until) } else { Next::AppStep(act) }
}

/// Decides the next step towards a device without the application.
fn towards_gone(view: AppView<'_>, track: &AppRecord, limits: StepLimits, now: Instant) -> Next {
    match view.state {
        AppState::Running => Next::AppStep(AppStep::Stop),
        AppState::Stopped | AppState::Activated => Next::AppStep(AppStep::Deactivate),
        AppState::Deployed => Next::AppStep(AppStep::Uninstall),
        AppState::Failed => Next::AppStep(removal_step(track)),
        // An install that hangs is ended by an uninstall; one that goes on is left to its end.
        AppState::Installing if hangs(track, limits, now) => Next::AppStep(AppStep::Uninstall),
        AppState::Installing | AppState::Unknown => Next::Wait,
        // An install that was accepted may not be visible yet: its configuration stays until then.
        AppState::Absent
            if track.installs(now) && now < track.waiting_since(AppStep::Install) + limits.step =>
        {
            Next::Wait
        }
        // A copy that is being made is left to its end, so that none is made after it was deleted.
        AppState::Absent if track.is_copying() => Next::Wait,
        AppState::Absent if view.package == Package::Copied && !track.is_discarded(limits) => {
            Next::AppStep(AppStep::Discard)
        }
        AppState::Absent if view.configured == Configured::No => Next::Done,
        AppState::Absent => Next::AppStep(AppStep::Remove),
    }
}

/// Returns `true` if an install exceeds its time limit.
fn hangs(track: &AppRecord, limits: StepLimits, now: Instant) -> bool {
    now >= track.waiting_since(AppStep::Install) + limits.install
}

/// Returns the step that removes a failed application. It depends on the step that failed, which the device does not
/// report, so the candidates alternate.
fn removal_step(track: &AppRecord) -> AppStep {
    let tries = |act| track.attempt(act).map_or(0, |attempt| attempt.tries);
    if tries(AppStep::Uninstall) > tries(AppStep::Deactivate) {
        AppStep::Deactivate
    } else {
        AppStep::Uninstall
    }
}

/// Waits for an operation on the device.
fn wait(view: AppView<'_>, track: &AppRecord, limits: StepLimits, now: Instant) -> Decision {
    let state = format!("the device reports {}", view.said);
    if track.is_copying() {
        return Decision::Wait { state: AppStep::Copy.doing().to_owned(), poll_after: POLL };
    }
    // An install that takes too long is ended before anybody waits for it here.
    if view.state != AppState::Unknown {
        return Decision::Wait { state, poll_after: POLL };
    }
    if now < track.waiting_since(AppStep::Install) + limits.step {
        return Decision::Wait { state, poll_after: SLOW };
    }
    let message = format!("{state} for more than {} s", limits.step.as_secs());
    Decision::Fail { reason: "UnknownState", message, poll_after: SLOW }
}

/// The delay after the `tries`th busy answer.
fn busy_delay(tries: u32) -> Duration {
    POLL.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(StepLimits::pause(tries))
}

/// Waits for the install of another application. After its time limit that is reported, and polled ever more rarely.
fn wait_for_install_of(other: Busy<'_>, limits: StepLimits, now: Instant) -> Decision {
    let (state, limit) = (format!("waiting for the install of {}", other.app), limits.longest_install());
    let overdue = now.saturating_duration_since(other.since + limit);
    if overdue.is_zero() {
        return Decision::Wait { state, poll_after: POLL };
    }
    let message = format!("{state}, for more than {} s", limit.as_secs());
    Decision::Fail {
        reason: AppStep::Install.failed(),
        message,
        poll_after: overdue.clamp(SLOW, LONGEST_PAUSE),
    }
}

/// Decides for the step, unless it was tried too recently.
fn unless_tried_recently(
    act: AppStep,
    view: AppView<'_>,
    track: &AppRecord,
    limits: StepLimits,
    now: Instant,
) -> Decision {
    if let Some(attempt) = track.attempt(act) {
        if let Some(refusal) = &attempt.refusal {
            let (busy, tries) = (refusal.kind == RefusalKind::Busy, attempt.tries);
            let until = refusal.at + if busy { busy_delay(tries) } else { StepLimits::pause(tries) };
            if now < until && busy && attempt.tries <= BUSY_RETRIES {
                let state = format!("{}; the device is busy: {}", act.doing(), refusal.said);
                return Decision::Wait { state, poll_after: until - now };
            }
            if now < until {
                let (message, poll_after) = (refusal.said.clone(), until - now);
                return Decision::Fail { reason: act.failed(), message, poll_after };
            }
        } else if now < attempt.until {
            let state = format!("{}; the device reports {}", act.doing(), view.said);
            if attempt.tries > 1 {
                let message = format!("{state}; tried {} times", attempt.tries);
                let poll_after = SLOW.min(attempt.until - now);
                return Decision::Fail { reason: act.failed(), message, poll_after };
            }
            return Decision::Wait { state, poll_after: POLL };
        }
    }
    match view.busy {
        Some(other) if act == AppStep::Install => wait_for_install_of(other, limits, now),
        _ if act == AppStep::Copy && view.copying.is_some() => Decision::Wait {
            state: format!("waiting for the copy of {}", view.copying.unwrap_or_default()),
            poll_after: POLL,
        },
        _ => Decision::Do(act),
    }
}
