//! The in-memory record of the steps that were tried for one application. It delays repeated steps; a process that
//! starts without it continues correctly.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::act::AppStep;
use super::state::AppState;
use crate::model::oper::Notification;
use crate::model::quote::quoted;

/// The running time of an application after which its earlier exits and failures do not count any more.
const STABLE: Duration = Duration::from_secs(600);

/// The time to wait for the effect of a step if the device may not have received the request.
pub(crate) const UNCERTAIN: Duration = Duration::from_secs(5);

/// The in-memory record of the steps that were tried for one application.
#[derive(Clone, Debug)]
pub(crate) struct AppRecord {
    /// The last observed state of the application, which is unchanged since the time `since`.
    state: AppState,
    pub(super) since: Instant,
    /// The last attempt of each step that was tried and has not led to its target state yet.
    attempts: HashMap<AppStep, Attempt>,
    /// The number of failures that the device reported since the application last ran for [`STABLE`].
    pub(super) failures: u32,
    /// The number of exits since the application last ran for [`STABLE`].
    pub(super) ended: u32,
    /// `true` from the request of an install, or its first observation, until the application is in another state than `Absent`,
    /// `Installing` or `Unknown`.
    installing: bool,
    /// `true` if the application disappeared after this process requested its uninstall.
    pub(crate) uninstalled: bool,
    /// The timestamps of the failure notifications that existed before the last install, activation or start.
    earlier: HashSet<String>,
    /// The explanation of the current failure, as the device reported it; `None` if it has reported none.
    pub(super) reason: Option<String>,
    /// The state of the package's download and copy.
    pub(super) fetch: Fetch,
}

/// The state of a package's download and copy, in addition to the steps that were tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetch {
    /// `true` if the device's download of the package was stopped because it did not complete within the time limit.
    pub(super) download_timed_out: bool,
    /// The number of times that the device has copied the whole package to its flash.
    pub(super) copies: u32,
    /// `true` if the last copy of the package on the flash was deleted.
    pub(super) discarded: bool,
    /// `true` if the device may be making a copy whose response this process does not await: another process requested
    /// it, or the connection was lost.
    pub(super) untracked_copy: bool,
}

/// The last attempt of a step.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The time at which the request of the step was sent.
    pub(super) at: Instant,
    /// The time by which the effect of the step must be visible.
    pub(super) until: Instant,
    /// The number of consecutive attempts at the step. When the state of the application changes, it begins anew if the device
    /// had refused the step, or if the new state is `Absent` or makes the step unnecessary. It continues after an install that was
    /// cancelled or aborted.
    pub(super) tries: u32,
    /// `true` if the device may not have received the request of the step.
    uncertain: bool,
    /// The refusal or failure of the step; `None` if none is known.
    pub(super) refusal: Option<StepRefusal>,
}

/// The refusal of a step by the device, or the failure of an accepted step on the device.
#[derive(Clone, Debug)]
pub(super) struct StepRefusal {
    /// The time of the refusal.
    pub(super) at: Instant,
    /// The message of the device about the refusal or failure, or a description of the failure by this driver.
    pub(super) device_text: String,
    /// The kind of the refusal.
    pub(super) kind: RefusalKind,
}

/// The kind of a refusal, which determines the delay before the next attempt, and if another way of installing is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The device is busy, possibly with its own operation. The next attempt is made soon.
    Busy,
    /// The step failed; a retry may succeed.
    Temporary,
    /// The step failed; a retry will fail too.
    Lasting,
}

impl AppRecord {
    /// Creates a record without steps, for an application in this state.
    pub(crate) fn new(state: AppState, now: Instant) -> Self {
        Self {
            state,
            since: now,
            attempts: HashMap::new(),
            failures: u32::from(state == AppState::Failed),
            ended: 0,
            installing: state == AppState::Installing,
            uninstalled: false,
            earlier: HashSet::new(),
            reason: None,
            fetch: Fetch { untracked_copy: !AppStep::Copy.is_fulfilled_by(state), ..Fetch::default() },
        }
    }

    /// Records the observed state of the application. If it changed, forgets the attempts at steps that the device refused or that the new
    /// state makes unnecessary. An install counts as failed if the application is still absent after the time limit, or disappears during
    /// the install, unless this process requested its uninstall within the time limit. Returns `true` if the device has activated or
    /// started the application by itself.
    pub(crate) fn observe(&mut self, state: AppState, now: Instant) -> bool {
        if state == self.state {
            self.fail_overdue_install(now);
            return false;
        }
        let by_itself = self.is_spontaneous_change(state);
        let (before, lasted) = (self.state, now - self.since);
        (self.state, self.since, self.reason) = (state, now, None);
        let install = self.attempts.get(&AppStep::Install).cloned();
        let asked_to_stop = self.attempts.get(&AppStep::Uninstall).map(|uninstall| uninstall.at);
        let in_vain = |at: Instant| install.as_ref().is_none_or(|install| at >= install.until);
        let past = |act: &AppStep| state == AppState::Absent || act.is_fulfilled_by(state);
        self.attempts.retain(|act, attempt| attempt.refusal.is_none() && !past(act));
        self.fetch.download_timed_out &= !matches!(state, AppState::Activated | AppState::Running);
        self.fetch.untracked_copy &= !AppStep::Copy.is_fulfilled_by(state);
        if before == AppState::Running && lasted >= STABLE {
            (self.failures, self.ended) = (0, 0);
        }
        self.uninstalled = state == AppState::Absent && asked_to_stop.is_some();
        self.installing &= matches!(state, AppState::Installing | AppState::Unknown | AppState::Absent);
        match (before, state) {
            (_, AppState::Failed) => self.failures += 1,
            // The delay before the next install grows with each cancelled one.
            (AppState::Installing, AppState::Absent) if asked_to_stop.is_some_and(in_vain) => {
                let tries = install.map_or(1, |install| install.tries);
                let ended = Attempt { at: now, until: now, tries, uncertain: false, refusal: None };
                self.attempts.insert(AppStep::Install, ended);
                let device_text = "the install exceeded its time limit and was cancelled".to_owned();
                self.refused(AppStep::Install, device_text, RefusalKind::Temporary, now);
            }
            (AppState::Running, AppState::Stopped) => self.ended += 1,
            (AppState::Installing | AppState::Unknown, AppState::Absent) if asked_to_stop.is_none() => {
                self.attempts.extend(install.map(|install| (AppStep::Install, install)));
                let device_text = "the device aborted the install".to_owned();
                self.refused(AppStep::Install, device_text, RefusalKind::Lasting, now);
            }
            _ => {}
        }
        by_itself
    }

    /// Returns `true` if the change from the last observed state to `state` is an activation or a start that this process has not
    /// requested, or that the device has refused.
    fn is_spontaneous_change(&self, state: AppState) -> bool {
        let act = match (self.state, state) {
            (AppState::Deployed, AppState::Activated | AppState::Running) => AppStep::Activate,
            (AppState::Activated, AppState::Running) => AppStep::Start,
            _ => return false,
        };
        self.attempt(act).is_none_or(|attempt| attempt.refusal.is_some())
    }

    /// Records an accepted install as failed if the application is still absent after the time limit.
    fn fail_overdue_install(&mut self, now: Instant) {
        let absent = self.state == AppState::Absent;
        let install = self.attempts.get_mut(&AppStep::Install).filter(|_| absent);
        if let Some(install) = install.filter(|install| install.refusal.is_none() && now >= install.until) {
            let limit = (install.until - install.at).as_secs();
            let device_text =
                format!("the device accepted the install, but no application appeared within {limit} s");
            let kind = if install.uncertain { RefusalKind::Temporary } else { RefusalKind::Lasting };
            install.refusal = Some(StepRefusal { at: now, device_text, kind });
        }
    }

    /// Records that a step is being tried at `now`, which may take up to `limit`.
    pub(crate) fn attempted(&mut self, act: AppStep, now: Instant, limit: Duration) {
        let tries = self.attempts.get(&act).map_or(0, |attempt| attempt.tries).saturating_add(1);
        let attempt = Attempt { at: now, until: now + limit, tries, uncertain: false, refusal: None };
        self.attempts.insert(act, attempt);
        self.installing |= act == AppStep::Install;
        // No copy is made before the configuration says so.
        self.fetch.untracked_copy &= act != AppStep::Divert;
        self.fetch.download_timed_out |= act == AppStep::Uninstall && self.state == AppState::Installing;
    }

    /// Records that the device has responded to a step, which may take up to `limit` from its request.
    pub(crate) fn answered(&mut self, act: AppStep, limit: Duration) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.at + limit;
            attempt.uncertain = false;
        }
    }

    /// Records that the device may not receive the request of a step: its effect is awaited for at most [`UNCERTAIN`].
    pub(crate) fn uncertain(&mut self, act: AppStep) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.until.min(attempt.at + UNCERTAIN);
            attempt.uncertain = true;
        }
    }

    /// Records that the response to a step was lost at `now`. The device may have received the request as late as that,
    /// so its effect is awaited for [`UNCERTAIN`] from `now`.
    pub(crate) fn lost(&mut self, act: AppStep, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            (attempt.until, attempt.uncertain) = (now + UNCERTAIN, true);
        }
    }

    /// Records that the device refused a step, or reported its failure. Ignored if the step was not tried.
    pub(crate) fn refused(&mut self, act: AppStep, device_text: String, kind: RefusalKind, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.refusal = Some(StepRefusal { at: now, device_text, kind });
        }
    }

    /// Records the failures of the application `id` that the device has reported before a step. Their timestamps are
    /// only compared for equality, because the clock of the device may differ.
    pub(crate) fn record_earlier_failures(&mut self, notifications: &[Notification], id: &str) {
        let reported = notifications.iter().filter(|notification| notification.is_failure(id));
        self.earlier = reported.map(|notification| notification.timestamp.clone()).collect();
    }

    /// Records the newest failure of the application `id` that the device has reported since the last step: that of an
    /// install, an activation or a start, or the explanation of the state `Failed`.
    pub(crate) fn record_failures(&mut self, notifications: &[Notification], id: &str, now: Instant) {
        let mut failures = notifications.iter().rev().filter(|reported| reported.is_failure(id));
        let Some(failure) = failures.find(|failure| !self.earlier.contains(&failure.timestamp)) else {
            return;
        };
        let (act, impossible) = match self.state {
            AppState::Failed => {
                self.reason = Some(quoted(&failure.message));
                return;
            }
            AppState::Absent => (AppStep::Install, failure.is_unsupported()),
            // A lack of resources may be temporary.
            AppState::Deployed => (AppStep::Activate, false),
            AppState::Activated | AppState::Stopped => (AppStep::Start, false),
            AppState::Installing | AppState::Running | AppState::Unknown => return,
        };
        if let Some(attempt) = self.attempts.get_mut(&act) {
            let at = attempt.refusal.as_ref().map_or(now, |refusal| refusal.at);
            let device_text = quoted(&failure.message);
            let kind = if impossible { RefusalKind::Lasting } else { RefusalKind::Temporary };
            attempt.refusal = Some(StepRefusal { at, device_text, kind });
        }
    }

    /// Returns `true` if the notifications of the device should be read, because they may explain a failure.
    pub(crate) fn awaits_report(&self) -> bool {
        let open = |act| self.attempt(act).is_some_and(|attempt| attempt.refusal.is_none());
        match self.state {
            AppState::Failed => true,
            AppState::Deployed => self.installing || open(AppStep::Activate),
            AppState::Activated | AppState::Stopped => self.installing || open(AppStep::Start),
            AppState::Absent | AppState::Installing | AppState::Running | AppState::Unknown => {
                self.installing
            }
        }
    }

    /// Returns `true` if the device certainly has only the configuration that this process wrote, and nothing is installed.
    pub(crate) fn is_only_configured(&self) -> bool {
        let is_written = |configure: &Attempt| configure.refusal.is_none() && !configure.uncertain;
        self.state == AppState::Absent
            && self.attempt(AppStep::Configure).is_some_and(is_written)
            && self.attempt(AppStep::Install).is_none()
    }

    /// Returns `true` if the disappearance of the application `id` has a known cause: this process has requested its
    /// uninstall, or the device reports that the install has failed.
    pub(crate) fn expects_absence(&self, notifications: &[Notification], id: &str) -> bool {
        let is_new = |failure: &&Notification| !self.earlier.contains(&failure.timestamp);
        let asked = self.attempt(AppStep::Uninstall).is_some_and(|uninstall| uninstall.refusal.is_none());
        let failures = || notifications.iter().filter(|reported| reported.is_failure(id));
        asked || (self.state == AppState::Installing && failures().any(|failure| is_new(&failure)))
    }

    /// Undoes the record of an attempt that was not made: replaces it by the attempt `before`.
    pub(crate) fn restore(&mut self, act: AppStep, before: Option<Attempt>) {
        self.attempts.remove(&act);
        self.attempts.extend(before.map(|before| (act, before)));
    }

    /// Removes the attempt of a step whose request certainly did not reach the device, or whose result is obsolete.
    pub(crate) fn unsent(&mut self, act: AppStep) {
        self.attempts.remove(&act);
    }

    /// Returns `true` if an install was requested, its time limit has not passed, and the device has neither refused it nor reported the
    /// application yet.
    pub(crate) fn installs(&self, now: Instant) -> bool {
        let install = self.attempts.get(&AppStep::Install).filter(|install| install.refusal.is_none());
        self.state == AppState::Absent && install.is_some_and(|install| now < install.until)
    }

    /// Returns `true` if a step was tried, or the state changed, less than `age` ago.
    pub(crate) fn recent(&self, now: Instant, age: Duration) -> bool {
        now < self.since + age || self.attempts.values().any(|attempt| now < attempt.at + age)
    }

    /// Returns the message with which the device last refused a step, or else its explanation of the current failure;
    /// `None` if there is neither.
    pub(crate) fn problem(&self) -> Option<&str> {
        let refusals = self.attempts.values().filter_map(|attempt| attempt.refusal.as_ref());
        let device_text =
            refusals.max_by_key(|refusal| refusal.at).map(|refusal| refusal.device_text.as_str());
        device_text.or(self.reason.as_deref())
    }

    /// Returns the last attempt of a step; `None` if there was none, or if it was forgotten: the step has led to its target state, the
    /// state changed after a refusal, or the request was not sent.
    pub(crate) fn attempt(&self, act: AppStep) -> Option<&Attempt> {
        self.attempts.get(&act)
    }

    /// Returns the later of the time at which the current state began, and the time of the last attempt of the step.
    pub(super) fn waiting_since(&self, act: AppStep) -> Instant {
        self.attempt(act).map_or(self.since, |attempt| attempt.at.max(self.since))
    }
}
