//! Decides the next step of an application, without I/O.

use std::time::Duration;

use tokio::time::Instant;

use super::act::{AppStep, LONGEST_PAUSE, Package, StepLimits};
use super::flash::fetch;
use super::record::{AppRecord, RefusalKind};
use super::state::AppState;

/// The delay before the next read of the device while an operation on an application is in progress.
pub(crate) const POLL: Duration = Duration::from_millis(300);

/// The delay before the next read of the device while it reports an unknown state, and in other waits of unknown length.
const SLOW_POLL: Duration = Duration::from_secs(5);

/// The delay before the next read of the device after an install was reported as slow.
const SLOW_INSTALL_POLL: Duration = Duration::from_secs(30);

/// The number of consecutive refusals of a step because the device is busy, before they are reported as a failure.
const BUSY_RETRIES: u32 = 5;

/// The observed state of an application, and of other applications as far as they delay its next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppView<'a> {
    /// The result of comparing the application's configuration on the device with the wanted one.
    pub(crate) configured: Configured,
    /// The state of the application on the device.
    pub(crate) state: AppState,
    /// The state of the application in the words of the device, for messages.
    pub(crate) device_text: &'a str,
    /// The source of the application's package.
    pub(crate) package: Package,
    /// Another application that is being installed; `None` if there is none. The next install waits for it, because a device that installs
    /// two applications at the same time may lose one of them.
    pub(crate) busy: Option<Busy<'a>>,
    /// The name of another application whose package is being copied to the flash; `None` if there is none. Only one copy runs at a time.
    pub(crate) copying: Option<&'a str>,
    /// `true` if the device may activate and start an installed application by itself.
    pub(crate) starts_by_itself: bool,
}

/// Another application that the device is installing. The next install must wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy<'a> {
    /// The name of the application that is being installed.
    pub(crate) app: &'a str,
    /// The time since which that application is being installed.
    pub(crate) since: Instant,
}

/// The result of comparing the configuration of an application with the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Configured {
    /// The device has no configuration of the application.
    No,
    /// The application's configuration on the device is the wanted one.
    Yes,
    /// The application's configuration on the device differs from the wanted one.
    Outdated,
}

/// The goal for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The application is to run, with the configuration of its pod.
    Running {
        /// `true` if an application that exited is to be started again.
        ended: bool,
        /// `true` if the application is to be installed or activated again after it failed on the device ([`AppState::Failed`]).
        failed: bool,
    },
    /// The application is to be removed from the device.
    Removed,
}

/// The next action for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The application needs no step: its goal is reached, or it has exited or failed and is not to be restarted.
    Done,
    /// Take this step, then read the device again.
    Do(AppStep),
    /// Read the device again after `poll_after`. `state` describes the wait, for messages.
    Wait { state: String, poll_after: Duration },
    /// Report a failure with its `reason` and `message`, and read the device again after `poll_after`.
    Fail { reason: &'static str, message: String, poll_after: Duration },
}

/// Decides the next action for an application.
///
/// * Repeated calls lead from every known state to the goal, one step at a time, if the device executes the steps.
/// * A step is not repeated within its time limit while the state is unchanged. After a refusal the step is delayed; the delay doubles with
///   each refusal. An application that exits or fails repeatedly is restarted with the same delays.
/// * While the device reports an unknown state, no step is taken, except to remove the application if the state lasts.
pub(crate) fn decide(
    view: AppView<'_>,
    goal: Goal,
    record: &AppRecord,
    limits: StepLimits,
    now: Instant,
) -> Decision {
    let decider = Decider { view, record, limits, now };
    let next = match (goal, view.configured) {
        (Goal::Running { ended, failed }, Configured::Yes) => decider.towards_running(ended, failed),
        (Goal::Running { .. }, Configured::No) => Next::AppStep(AppStep::Configure),
        (Goal::Running { .. }, Configured::Outdated) | (Goal::Removed, _) => decider.towards_gone(),
    };
    match next {
        Next::Done => Decision::Done,
        Next::Pause(until) => {
            let reported = record.reason.as_ref().map(|reported| format!(": {reported}")).unwrap_or_default();
            let message = format!("the device reports {}{reported}", view.device_text);
            Decision::Fail { reason: "CrashLoopBackOff", message, poll_after: until - now }
        }
        Next::Wait => decider.wait(),
        Next::AppStep(act) => decider.unless_tried_recently(act),
    }
}

/// The next step of an application, which may still be delayed because it was tried recently.
enum Next {
    /// The application needs no step: its goal is reached, or it has exited or failed and is not to be restarted.
    Done,
    /// Take this step.
    AppStep(AppStep),
    /// An operation runs on the device: wait for its end.
    Wait,
    /// The application has exited or failed. The next step to make it run again is taken at this time.
    Pause(Instant),
}

/// The input of a decision about one application.
struct Decider<'a> {
    view: AppView<'a>,
    record: &'a AppRecord,
    limits: StepLimits,
    now: Instant,
}

impl Decider<'_> {
    /// Decides the next step towards a running application. `ended` and `failed` are the fields of [`Goal::Running`].
    fn towards_running(&self, ended: bool, failed: bool) -> Next {
        match self.view.state {
            AppState::Absent => Next::AppStep(fetch(self.view.package, self.record)),
            AppState::Deployed => self.wait_for_device_or(AppStep::Activate),
            AppState::Activated => self.wait_for_device_or(AppStep::Start),
            AppState::Stopped if ended => self.after_back_off(self.record.ended, AppStep::Start),
            AppState::Running | AppState::Stopped => Next::Done,
            AppState::Failed if !failed => Next::Done,
            AppState::Failed => self.after_back_off(self.record.failures, self.removal_step()),
            // A device that hangs on a URL is given the package in another way.
            AppState::Installing
                if self.view.package == Package::AtUrl && self.lasts(self.limits.install) =>
            {
                Next::AppStep(AppStep::Uninstall)
            }
            AppState::Installing | AppState::Unknown => Next::Wait,
        }
    }

    /// Decides to take the step `act`, or to wait while the device may still take it by itself: for up to the time limit of a step.
    fn wait_for_device_or(&self, act: AppStep) -> Next {
        let may_come = self.view.starts_by_itself && self.record.attempt(act).is_none();
        if may_come && self.now < self.record.since + self.limits.step {
            Next::Wait
        } else {
            Next::AppStep(act)
        }
    }

    /// Decides to take the step `act` after the `times`th exit or failure of an application, or to pause: the back-off doubles each time.
    fn after_back_off(&self, times: u32, act: AppStep) -> Next {
        let until = self.record.since + if times == 0 { Duration::ZERO } else { StepLimits::pause(times) };
        if self.now < until { Next::Pause(until) } else { Next::AppStep(act) }
    }

    /// Decides the next step towards the removal of the application from the device.
    fn towards_gone(&self) -> Next {
        match self.view.state {
            AppState::Running => Next::AppStep(AppStep::Stop),
            AppState::Stopped | AppState::Activated => Next::AppStep(AppStep::Deactivate),
            AppState::Deployed => Next::AppStep(AppStep::Uninstall),
            AppState::Failed => Next::AppStep(self.removal_step()),
            // A slow install is ended by an uninstall; any other one is left to its end.
            AppState::Installing if self.lasts(self.limits.slow) => Next::AppStep(AppStep::Uninstall),
            AppState::Unknown if self.now >= self.record.since + self.limits.step => {
                Next::AppStep(self.least_tried(&[AppStep::Stop, AppStep::Deactivate, AppStep::Uninstall]))
            }
            AppState::Installing | AppState::Unknown => Next::Wait,
            // An install that was accepted may not be visible yet: its configuration stays until then.
            AppState::Absent
                if self.record.installs(self.now)
                    && self.now < self.record.waiting_since(AppStep::Install) + self.limits.step =>
            {
                Next::Wait
            }
            // A copy that is being made is left to its end, so that none is made after it was deleted.
            AppState::Absent if self.record.is_copying() => Next::Wait,
            AppState::Absent
                if self.view.package == Package::Copied && !self.record.is_discarded(self.limits) =>
            {
                Next::AppStep(AppStep::Discard)
            }
            AppState::Absent if self.view.configured == Configured::No => Next::Done,
            AppState::Absent => Next::AppStep(AppStep::Remove),
        }
    }

    /// Returns `true` if the application has been in its current state, without a new request to install it, for `limit` or longer.
    fn lasts(&self, limit: Duration) -> bool {
        self.now >= self.record.waiting_since(AppStep::Install) + limit
    }

    /// Returns the step that removes a failed application: an uninstall or a deactivation, in turn. The right one depends
    /// on the step that failed, which the device does not report.
    fn removal_step(&self) -> AppStep {
        self.least_tried(&[AppStep::Uninstall, AppStep::Deactivate])
    }

    /// Returns the step of `steps` that was tried the least often; if there are several, the first one.
    fn least_tried(&self, steps: &[AppStep]) -> AppStep {
        let tries = |act: &&AppStep| self.record.attempt(**act).map_or(0, |attempt| attempt.tries);
        *steps.iter().min_by_key(tries).expect("there is a step")
    }

    /// Decides to wait for an operation that runs on the device, or for the end of an unknown state. An install that is slow or exceeds its
    /// time limit, and an unknown state that lasts, are reported as failures.
    fn wait(&self) -> Decision {
        let state = format!("the device reports {}", self.view.device_text);
        let installs = self.view.state == AppState::Installing;
        if self.record.is_copying() {
            Decision::Wait { state: AppStep::Copy.doing().to_owned(), poll_after: POLL }
        } else if installs && self.lasts(self.limits.install) {
            let limit = self.limits.install.as_secs();
            let message = format!("{state} for more than {limit} s; delete the pod to cancel the install");
            Decision::Fail { reason: AppStep::Install.failed(), message, poll_after: SLOW_INSTALL_POLL }
        } else if installs && self.lasts(self.limits.slow) {
            let message = format!("{state} for more than {} s", self.limits.slow.as_secs());
            Decision::Fail { reason: "InstallSlow", message, poll_after: SLOW_INSTALL_POLL }
        } else if self.view.state == AppState::Unknown && self.lasts(self.limits.step) {
            let message = format!("{state} for more than {} s", self.limits.step.as_secs());
            Decision::Fail { reason: "ContainerStatusUnknown", message, poll_after: SLOW_POLL }
        } else {
            let poll_after = if self.view.state == AppState::Unknown { SLOW_POLL } else { POLL };
            Decision::Wait { state, poll_after }
        }
    }

    /// Decides to wait for the install of another application. After the time limit of an install, the decision is to report a failure,
    /// with growing delays between reads of the device.
    fn wait_for_install_of(&self, other: Busy<'_>) -> Decision {
        let (state, limit) =
            (format!("waiting for the install of {}", other.app), self.limits.longest_install());
        let overdue = self.now.saturating_duration_since(other.since + limit);
        if overdue.is_zero() {
            return Decision::Wait { state, poll_after: POLL };
        }
        let message = format!("{state}, for more than {} s", limit.as_secs());
        Decision::Fail {
            reason: AppStep::Install.failed(),
            message,
            poll_after: overdue.clamp(SLOW_POLL, LONGEST_PAUSE),
        }
    }

    /// Decides to take the step `act`, or to wait or report a failure if it was tried too recently, or if another application must be
    /// installed or copied first.
    fn unless_tried_recently(&self, act: AppStep) -> Decision {
        if let Some(attempt) = self.record.attempt(act) {
            if let Some(refusal) = &attempt.refusal {
                let (busy, tries) = (refusal.kind == RefusalKind::Busy, attempt.tries);
                let until = refusal.at + if busy { busy_delay(tries) } else { StepLimits::pause(tries) };
                if self.now < until && busy && attempt.tries <= BUSY_RETRIES {
                    let state = format!("{}; the device is busy: {}", act.doing(), refusal.device_text);
                    return Decision::Wait { state, poll_after: until - self.now };
                }
                if self.now < until {
                    let (message, poll_after) =
                        (format!("{}: {}", act.doing(), refusal.device_text), until - self.now);
                    return Decision::Fail { reason: act.failed(), message, poll_after };
                }
            } else if self.now < attempt.until {
                let state = format!("{}; the device reports {}", act.doing(), self.view.device_text);
                if attempt.tries > 1 {
                    let message = format!("{state}; tried {} times", attempt.tries);
                    let poll_after = SLOW_POLL.min(attempt.until - self.now);
                    return Decision::Fail { reason: act.failed(), message, poll_after };
                }
                return Decision::Wait { state, poll_after: POLL };
            }
        }
        match self.view.busy {
            Some(other) if act == AppStep::Install => self.wait_for_install_of(other),
            _ if act == AppStep::Copy && self.view.copying.is_some() => Decision::Wait {
                state: format!("waiting for the copy of {}", self.view.copying.unwrap_or_default()),
                poll_after: POLL,
            },
            _ => Decision::Do(act),
        }
    }
}

/// Returns the delay after the `tries`th consecutive refusal of a step because the device is busy.
fn busy_delay(tries: u32) -> Duration {
    POLL.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(StepLimits::pause(tries))
}
