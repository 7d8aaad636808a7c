//! What was tried with one application, and when. It spaces the steps; a process that has lost it goes on all the same.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::act::Act;
use super::state::AppState;
use crate::model::oper::Notification;
use crate::model::quote::quoted;

/// How long an application must run for its earlier failures to be forgotten.
const STEADY: Duration = Duration::from_secs(600);

/// How long to wait for the effect of a step of which nobody knows whether the device was told.
const UNCERTAIN: Duration = Duration::from_secs(5);

/// What was tried with one application.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// How it was when somebody looked last, and since when.
    state: AppState,
    since: Instant,
    /// What was tried, and has not led where it leads yet.
    attempts: HashMap<Act, Attempt>,
    /// How often the device gave up since it ran steadily.
    pub(super) failures: u32,
    /// How often it ended since it ran steadily.
    pub(super) ended: u32,
    /// Whether it is being installed, or failed to be.
    installing: bool,
    /// The times of the failures that the device told before the install.
    heard: HashSet<String>,
    /// What the device told of the failure that it is in.
    reason: Option<String>,
    /// What was found out of its package.
    pub(super) fetch: Fetch,
}

/// What was found out of a package, beside the steps that were tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetch {
    /// Whether the device hung while it fetched the package itself.
    pub(super) hung: bool,
    /// How often a copy was made.
    pub(super) copies: u32,
    /// Whether there is none any more.
    pub(super) discarded: bool,
    /// Whether the device may be making a copy for whose end nobody here waits: somebody began it before this process did anything,
    /// or its answer got lost.
    pub(super) stray: bool,
}

/// A step that was tried.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) at: Instant,
    /// Until when it may take.
    pub(super) until: Instant,
    /// How often in a row it was tried without any change of the application.
    pub(super) tries: u32,
    /// Whether nobody knows if the device was told.
    uncertain: bool,
    pub(super) refusal: Option<Refusal>,
}

/// What the device said, where it did not want to or could not.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) at: Instant,
    pub(super) said: String,
    pub(super) sort: Sort,
}

/// What sort of a refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The device is busy, with a step of its own perhaps.
    Busy,
    /// It could not, this time.
    Now,
    /// It could not another time either.
    Lasting,
}

impl Track {
    /// Nothing was tried yet.
    pub(crate) fn new(state: AppState, now: Instant) -> Self {
        Self {
            state,
            since: now,
            attempts: HashMap::new(),
            failures: u32::from(state == AppState::Failed),
            ended: 0,
            installing: state == AppState::Installing,
            heard: HashSet::new(),
            reason: None,
            fetch: Fetch { stray: !Act::Copy.is_fulfilled_by(state), ..Fetch::default() },
        }
    }

    /// Takes down how the application is. When that changed, what was refused before is past, and so is what led there. When
    /// it is not there long after an install was accepted, or not any more, the install failed.
    pub(crate) fn observe(&mut self, state: AppState, now: Instant) {
        if state == self.state {
            self.give_up_install(now);
            return;
        }
        let (before, lasted) = (self.state, now - self.since);
        (self.state, self.since, self.reason) = (state, now, None);
        let install = self.attempts.get(&Act::Install).cloned();
        let told_to_go = self.attempts.get(&Act::Uninstall).map(|uninstall| uninstall.at);
        let in_vain = |at: Instant| install.as_ref().is_none_or(|install| at >= install.until);
        let past = |act: &Act| state == AppState::Absent || act.is_fulfilled_by(state);
        self.attempts.retain(|act, attempt| attempt.refusal.is_none() && !past(act));
        self.fetch.hung &= !matches!(state, AppState::Activated | AppState::Running);
        self.fetch.stray &= !Act::Copy.is_fulfilled_by(state);
        if before == AppState::Running && lasted >= STEADY {
            (self.failures, self.ended) = (0, 0);
        }
        self.installing &= matches!(state, AppState::Installing | AppState::Unknown | AppState::Absent);
        match (before, state) {
            (_, AppState::Failed) => self.failures += 1,
            // The pause after it grows with each.
            (AppState::Installing, AppState::Absent) if told_to_go.is_some_and(in_vain) => {
                let said = "the install came to no end, and was ended".to_owned();
                let refusal = Some(Refusal { at: now, said, sort: Sort::Now });
                let tries = install.map_or(1, |install| install.tries);
                let ended = Attempt { at: now, until: now, tries, uncertain: false, refusal };
                self.attempts.insert(Act::Install, ended);
            }
            (AppState::Running, AppState::Stopped) => self.ended += 1,
            (AppState::Installing | AppState::Unknown, AppState::Absent) if told_to_go.is_none() => {
                let said = "the device gave the install up".to_owned();
                let refusal = Some(Refusal { at: now, said, sort: Sort::Lasting });
                let install = install.map(|install| Attempt { refusal, ..install });
                self.attempts.extend(install.map(|install| (Act::Install, install)));
            }
            _ => {}
        }
    }

    fn give_up_install(&mut self, now: Instant) {
        let absent = self.state == AppState::Absent;
        let install = self.attempts.get_mut(&Act::Install).filter(|_| absent);
        if let Some(install) = install.filter(|install| install.refusal.is_none() && now >= install.until) {
            let limit = (install.until - install.at).as_secs();
            let said = format!("the device accepted the install, and nothing came of it within {limit} s");
            let sort = if install.uncertain { Sort::Now } else { Sort::Lasting };
            install.refusal = Some(Refusal { at: now, said, sort });
        }
    }

    /// Takes down that a step is being tried, which may take that long.
    pub(crate) fn attempted(&mut self, act: Act, now: Instant, limit: Duration) {
        let tries = self.attempts.get(&act).map_or(0, |attempt| attempt.tries).saturating_add(1);
        let attempt = Attempt { at: now, until: now + limit, tries, uncertain: false, refusal: None };
        self.attempts.insert(act, attempt);
        self.installing |= act == Act::Install;
        // No copy is made before the configuration says so.
        self.fetch.stray &= act != Act::Divert;
        self.fetch.hung |= act == Act::Uninstall && self.state == AppState::Installing;
    }

    /// Takes down that the device has answered to a step, which may take that long.
    pub(crate) fn answered(&mut self, act: Act, limit: Duration) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.at + limit;
            attempt.uncertain = false;
        }
    }

    /// Takes down that nobody knows whether the device was told of a step.
    pub(crate) fn uncertain(&mut self, act: Act) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.until = attempt.until.min(attempt.at + UNCERTAIN);
            attempt.uncertain = true;
        }
    }

    /// Takes down that the device does not want to, or could not, as far as it was tried.
    pub(crate) fn refused(&mut self, act: Act, said: String, sort: Sort, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.refusal = Some(Refusal { at: now, said, sort });
        }
    }

    /// Takes down what the device told before a step of `id`. Its clock is another one: times are only told apart.
    pub(crate) fn heard_before(&mut self, notifications: &[Notification], id: &str) {
        let told = notifications.iter().filter(|notification| notification.tells_of_failure(id));
        self.heard = told.map(|notification| notification.timestamp.clone()).collect();
    }

    /// Takes down what the device tells now: why `id` could not be installed, activated or started, or failed later.
    pub(crate) fn heard(&mut self, notifications: &[Notification], id: &str, now: Instant) {
        let mut failures = notifications.iter().rev().filter(|told| told.tells_of_failure(id));
        let Some(failure) = failures.find(|failure| !self.heard.contains(&failure.timestamp)) else {
            return;
        };
        let (act, impossible) = match self.state {
            AppState::Failed => {
                self.reason = Some(quoted(&failure.message));
                return;
            }
            AppState::Absent => (Act::Install, failure.tells_of_the_impossible()),
            // That there is no room now says nothing of later.
            AppState::Deployed => (Act::Activate, false),
            AppState::Activated | AppState::Stopped => (Act::Start, false),
            AppState::Installing | AppState::Running | AppState::Unknown => return,
        };
        if let Some(attempt) = self.attempts.get_mut(&act) {
            let at = attempt.refusal.as_ref().map_or(now, |refusal| refusal.at);
            let said = quoted(&failure.message);
            let sort = if impossible { Sort::Lasting } else { Sort::Now };
            attempt.refusal = Some(Refusal { at, said, sort });
        }
    }

    /// Whether the device may have something to tell of a failure.
    pub(crate) fn listens(&self) -> bool {
        let open = |act| self.attempt(act).is_some_and(|attempt| attempt.refusal.is_none());
        match self.state {
            AppState::Failed => true,
            AppState::Deployed => self.installing || open(Act::Activate),
            AppState::Activated | AppState::Stopped => self.installing || open(Act::Start),
            AppState::Absent | AppState::Installing | AppState::Running | AppState::Unknown => {
                self.installing
            }
        }
    }

    /// Whether it is certain that the device has nothing of it but what this process has configured.
    pub(crate) fn is_only_configured(&self) -> bool {
        let tried = |act| self.attempts.contains_key(&act);
        self.state == AppState::Absent && tried(Act::Configure) && !tried(Act::Install)
    }

    /// Takes back an attempt that certainly never reached the device.
    pub(crate) fn unsent(&mut self, act: Act) {
        self.attempts.remove(&act);
    }

    /// Whether an install was accepted of which nothing is to be seen yet.
    pub(crate) fn installs(&self, now: Instant) -> bool {
        let install = self.attempts.get(&Act::Install).filter(|install| install.refusal.is_none());
        self.state == AppState::Absent && install.is_some_and(|install| now < install.until)
    }

    /// Whether anything was tried within that time.
    pub(crate) fn recent(&self, now: Instant, age: Duration) -> bool {
        now < self.since + age || self.attempts.values().any(|attempt| now < attempt.at + age)
    }

    /// What the device said when it refused last, for people.
    pub(crate) fn trouble(&self) -> Option<&str> {
        let refusals = self.attempts.values().filter_map(|attempt| attempt.refusal.as_ref());
        let said = refusals.max_by_key(|refusal| refusal.at).map(|refusal| refusal.said.as_str());
        said.or(self.reason())
    }

    /// What the device told of the failure that it is in.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn attempt(&self, act: Act) -> Option<&Attempt> {
        self.attempts.get(&act)
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// When the state that it is in began, or the step that led to it was tried.
    pub(super) fn waiting_since(&self, act: Act) -> Instant {
        self.attempt(act).map_or(self.since, |attempt| attempt.at.max(self.since))
    }
}
