//! What was tried with one application, and when. It spaces the steps; a process that has lost it goes on all the same.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::act::Act;
use super::state::AppState;
use crate::model::oper::Notification;

/// What was tried with one application.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// How it was when somebody looked last, and since when.
    state: AppState,
    since: Instant,
    attempts: HashMap<Act, Attempt>,
    /// How often the device gave up since it ran last.
    pub(super) failures: u32,
    /// The times of the failures that the device told before the install.
    heard: HashSet<String>,
}

/// A step that was tried.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) at: Instant,
    /// Until when it may take.
    pub(super) until: Instant,
    /// How often in a row it was tried without any change of the application.
    pub(super) tries: u32,
    pub(super) refusal: Option<Refusal>,
}

/// What the device said, where it did not want to or could not.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) at: Instant,
    pub(super) said: String,
}

impl Track {
    /// Nothing was tried yet.
    pub(crate) fn new(state: AppState, now: Instant) -> Self {
        let failures = u32::from(state == AppState::Failed);
        Self { state, since: now, attempts: HashMap::new(), failures, heard: HashSet::new() }
    }

    /// Takes down how the application is. When that changed, what was refused before is past. When it is not there long
    /// after an install was accepted, the install failed without a word.
    pub(crate) fn observe(&mut self, state: AppState, now: Instant) {
        if state == self.state {
            self.give_up_install(now);
            return;
        }
        (self.state, self.since) = (state, now);
        for attempt in self.attempts.values_mut() {
            attempt.refusal = None;
            attempt.tries = 1;
        }
        match state {
            AppState::Failed => self.failures += 1,
            AppState::Running => self.failures = 0,
            _ => {}
        }
    }

    fn give_up_install(&mut self, now: Instant) {
        let absent = self.state == AppState::Absent;
        let since = self.since;
        let install = self.attempts.get_mut(&Act::Install).filter(|install| absent && install.at >= since);
        if let Some(install) = install.filter(|install| install.refusal.is_none() && now >= install.until) {
            let limit = (install.until - install.at).as_secs();
            let said = format!("the device accepted the install, and nothing came of it within {limit} s");
            install.refusal = Some(Refusal { at: now, said });
        }
    }

    /// Takes down that a step is being tried, which may take that long.
    pub(crate) fn attempted(&mut self, act: Act, now: Instant, limit: Duration) {
        let tries = self.attempts.get(&act).map_or(0, |attempt| attempt.tries).saturating_add(1);
        self.attempts.insert(act, Attempt { at: now, until: now + limit, tries, refusal: None });
    }

    /// Takes down that the device does not want to, or could not, as far as it was tried.
    pub(crate) fn refused(&mut self, act: Act, said: String, now: Instant) {
        if let Some(attempt) = self.attempts.get_mut(&act) {
            attempt.refusal = Some(Refusal { at: now, said });
        }
    }

    /// Takes down what the device told before an install of `id`. Its clock is another one: times are only told apart.
    pub(crate) fn heard_before(&mut self, notifications: &[Notification], id: &str) {
        let told = notifications.iter().filter(|notification| notification.tells_of_failed_install(id));
        self.heard = told.map(|notification| notification.timestamp.clone()).collect();
    }

    /// Takes down what the device tells now: when an install of `id` failed, why.
    pub(crate) fn heard(&mut self, notifications: &[Notification], id: &str, now: Instant) {
        if !self.installs(now) {
            return;
        }
        let mut failures = notifications.iter().filter(|told| told.tells_of_failed_install(id));
        if let Some(failure) = failures.find(|failure| !self.heard.contains(&failure.timestamp)) {
            self.refused(Act::Install, failure.message.clone(), now);
        }
    }

    /// Takes back an attempt that certainly never reached the device.
    pub(crate) fn unsent(&mut self, act: Act) {
        self.attempts.remove(&act);
    }

    /// Whether an install was accepted of which nothing is to be seen yet.
    pub(crate) fn installs(&self, now: Instant) -> bool {
        let install = self.attempts.get(&Act::Install).filter(|install| install.refusal.is_none());
        self.state == AppState::Absent
            && install.is_some_and(|install| install.at >= self.since && now < install.until)
    }

    /// Whether anything was tried within that time.
    pub(crate) fn recent(&self, now: Instant, age: Duration) -> bool {
        now < self.since + age || self.attempts.values().any(|attempt| now < attempt.at + age)
    }

    /// What the device said when it refused last, for people.
    pub(crate) fn trouble(&self) -> Option<&str> {
        let refusals = self.attempts.values().filter_map(|attempt| attempt.refusal.as_ref());
        refusals.max_by_key(|refusal| refusal.at).map(|refusal| refusal.said.as_str())
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
