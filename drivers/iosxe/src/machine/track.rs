//! The record of the steps tried for one application. It spaces the steps; a process without it continues correctly.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::act::AppStep;
use super::state::AppState;
use crate::model::oper::Notification;
use crate::model::quote::quoted;

/// The running time after which earlier failures of an application are forgotten.
const STEADY: Duration = Duration::from_secs(600);

/// The time to wait for the effect of a step whose request may not have reached the device.
const UNCERTAIN: Duration = Duration::from_secs(5);

/// The record of the steps tried for one application.
#[derive(Clone, Debug)]
pub(crate) struct AppRecord {
    /// The last observed state and the time since which it holds.
    state: AppState,
    since: Instant,
    /// The steps that were tried and have not had their effect yet.
    attempts: HashMap<AppStep, Attempt>,
    /// The number of failures reported by the device since the last steady run.
    pub(super) failures: u32,
    /// The number of exits since the last steady run.
    pub(super) ended: u32,
    /// `true` during an install, or after one failed.
    installing: bool,
    /// The times of the failures that the device reported before the install.
    earlier: HashSet<String>,
    /// The device's explanation of the current failure.
    reason: Option<String>,
    /// The state of the package.
    pub(super) fetch: Fetch,
}

/// The state of a package, beside the steps that were tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetch {
    /// `true` if the device's own download did not complete.
    pub(super) hung: bool,
    /// The number of copies made.
    pub(super) copies: u32,
    /// `true` if no copy is left.
    pub(super) discarded: bool,
    /// `true` if the device may be making a copy that this process does not wait for: it was started by another
    /// process, or its answer was lost.
    pub(super) untracked_copy: bool,
}

/// A step that was tried.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) at: Instant,
    /// The time at which it must be complete.
    pub(super) until: Instant,
    /// The number of consecutive attempts without any change of the application.
    pub(super) tries: u32,
    /// `true` if the request may not have reached the device.
    uncertain: bool,
    pub(super) refusal: Option<StepRefusal>,
}

/// The device's refusal of a step.
#[derive(Clone, Debug)]
pub(super) struct StepRefusal {
    pub(super) at: Instant,
    pub(super) said: String,
    pub(super) kind: RefusalKind,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The device is busy, possibly with its own operation.
    Busy,
    /// The step failed; a retry may succeed.
    Now,
    /// The step failed; a retry will fail too.
    Lasting,
}

impl AppRecord {
    /// Creates an empty record.
    pub(crate) fn new(state: AppState, now: Instant) -> Self {
        Self {
            state,
            since: now,
            attempts: HashMap::new(),
            failures: u32::from(state == AppState::Failed),
            ended: 0,
            installing: state == AppState::Installing,
            earlier: HashSet::new(),
            reason: None,
            fetch: Fetch { untracked_copy: !AppStep::Copy.is_fulfilled_by(state), ..Fetch::default() },
        }
    }

    /// Records the state of the application. A change ends the refused steps and those that led to it. If the application is
    /// absent long after an install was accepted, or disappears during the install, the install failed.
    pub(crate) fn observe(&mut self, state: AppState, now: Instant) {
        if state == self.state {
            self.give_up_install(now);
            return;
        }
        let (before, lasted) = (self.state, now - self.since);
        (self.state, self.since, self.reason) = (state, now, None);
        let install = self.attempts.get(&AppStep::Install).cloned();
        let asked_to_stop = self.attempts.get(&AppStep::Uninstall).map(|uninstall| uninstall.at);
        let in_vain = |at: Instant| install.as_ref().is_none_or(|install| at >= install.until);
        let past = |act: &AppStep| state == AppState::Absent || act.is_fulfilled_by(state);
        self.attempts.retain(|act, attempt| attempt.refusal.is_none() && !past(act));
        self.fetch.hung &= !matches!(state, AppState::Activated | AppState::Running);
        self.fetch.untracked_copy &= !AppStep::Copy.is_fulfilled_by(state);
        if before == AppState::Running && lasted >= STEADY {
            (self.failures, self.ended) = (0, 0);
        }
        self.installing &= matches!(state, AppState::Installing | AppState::Unknown | AppState::Absent);
        match (before, state) {
            (_, AppState::Failed) => self.failures += 1,
            // The pause after it grows with each.
            (AppState::Installing, AppState::Absent) if asked_to_stop.is_some_and(in_vain) => {
                let tries = install.map_or(1, |install| install.tries);
                let ended = Attempt { at: now, until: now, tries, uncertain: false, refusal: None };
                self.attempts.insert(AppStep::Install, ended);
                let said = "the install exceeded its time limit and was cancelled".to_owned();
                self.refused(AppStep::Install, said, RefusalKind::Now, now);
            }
            (AppState::Running, AppState::Stopped) => self.ended += 1,
            (AppState::Installing | AppState::Unknown, AppState::Absent) if asked_to_stop.is_none() => {
                self.attempts.extend(install.map(|install| (AppStep::Install, install)));
                let said = "the device aborted the install".to_owned();
                self.refused(AppStep::Install, said, RefusalKind::Lasting, now);
            }
            _ => {}
        }
    }

    fn give_up_install(&mut self, now: Instant) {
        let absent = self.state == AppState::Absent;
        let install = self.attempts.get_mut(&AppStep::Install).filter(|_| absent);
        if let Some(install) = install.filter(|install| install.refusal.is_none() && now >= install.until) {
            let limit = (install.until - install.at).as_secs();
            let said =
                format!("the device accepted the install, but no application appeared within {limit} s");
            let kind = if install.uncertain { RefusalKind::Now } else { RefusalKind::Lasting };
            install.refusal = Some(StepRefusal { at: now, said, kind });
        }
    }

    /// Records that a step is being tried, which may take that long.
    pub(crate) fn attempted(&mut self, act: AppStep, now: Instant, limit: Duration) {
        let tries = self.attempts.get(&act).map_or(0, |attempt| attempt.tries).saturating_add(1);
        let attempt = Attempt { at: now, until: now + limit, tries, uncertain: false, refusal: None };
        self.attempts.insert(act, attempt);
        self.installing |= act == AppStep::Install;
        // No copy is made before the configuration says so.
        self.fetch.untracked_copy &= act != AppStep::Divert;
        self.fetch.hung |= act == AppStep::Uninstall && self.state == AppState::Installing;
    }

    /// Records that the device has answered to a step, which may take that long.
    pub(crate) fn answered(&mut self, act: AppStep, limit: Duration) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.at + limit;
            attempt.uncertain = false;
        }
    }

    /// Records that the device may not have received a step.
    pub(crate) fn uncertain(&mut self, act: AppStep) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.until.min(attempt.at + UNCERTAIN);
            attempt.uncertain = true;
        }
    }

    /// Records that the answer to a step was lost at `now`. The device may have received the request only then, however long ago it
    /// was sent.
    pub(crate) fn lost(&mut self, act: AppStep, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            (attempt.until, attempt.uncertain) = (now + UNCERTAIN, true);
        }
    }

    /// Records that the device refused a step that was tried, or could not take it.
    pub(crate) fn refused(&mut self, act: AppStep, said: String, kind: RefusalKind, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.refusal = Some(StepRefusal { at: now, said, kind });
        }
    }

    /// Records the failures that the device reported before a step of `id`. Its clock is another one: times are only compared for equality.
    pub(crate) fn record_earlier_failures(&mut self, notifications: &[Notification], id: &str) {
        let reported = notifications.iter().filter(|notification| notification.is_failure(id));
        self.earlier = reported.map(|notification| notification.timestamp.clone()).collect();
    }

    /// Records what the device reports now: why `id` could not be installed, activated or started, or failed later.
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
            // That there is no room now says nothing of later.
            AppState::Deployed => (AppStep::Activate, false),
            AppState::Activated | AppState::Stopped => (AppStep::Start, false),
            AppState::Installing | AppState::Running | AppState::Unknown => return,
        };
        if let Some(attempt) = self.attempts.get_mut(&act) {
            let at = attempt.refusal.as_ref().map_or(now, |refusal| refusal.at);
            let said = quoted(&failure.message);
            let kind = if impossible { RefusalKind::Lasting } else { RefusalKind::Now };
            attempt.refusal = Some(StepRefusal { at, said, kind });
        }
    }

    /// Returns `true` if the device may have an explanation of a failure.
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

    /// Returns `true` if the device certainly has only the configuration that this process wrote.
    pub(crate) fn is_only_configured(&self) -> bool {
        let tried = |act| self.attempts.contains_key(&act);
        self.state == AppState::Absent && tried(AppStep::Configure) && !tried(AppStep::Install)
    }

    /// Withdraws an attempt that certainly never reached the device.
    pub(crate) fn unsent(&mut self, act: AppStep) {
        self.attempts.remove(&act);
    }

    /// Returns `true` if an install was accepted but is not visible yet.
    pub(crate) fn installs(&self, now: Instant) -> bool {
        let install = self.attempts.get(&AppStep::Install).filter(|install| install.refusal.is_none());
        self.state == AppState::Absent && install.is_some_and(|install| now < install.until)
    }

    /// Returns `true` if a step was tried within `age`.
    pub(crate) fn recent(&self, now: Instant, age: Duration) -> bool {
        now < self.since + age || self.attempts.values().any(|attempt| now < attempt.at + age)
    }

    /// The message of the last refusal.
    pub(crate) fn problem(&self) -> Option<&str> {
        let refusals = self.attempts.values().filter_map(|attempt| attempt.refusal.as_ref());
        let said = refusals.max_by_key(|refusal| refusal.at).map(|refusal| refusal.said.as_str());
        said.or(self.reason())
    }

    /// The device's explanation of the current failure.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn attempt(&self, act: AppStep) -> Option<&Attempt> {
        self.attempts.get(&act)
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The time at which the current state began, or the step that led to it was tried.
    pub(super) fn waiting_since(&self, act: AppStep) -> Instant {
        self.attempt(act).map_or(self.since, |attempt| attempt.at.max(self.since))
    }
}
