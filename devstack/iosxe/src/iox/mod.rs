//! App hosting of a device: the states of apps, and their changes over time. Pure: the time is an argument.

mod app;
mod config;
mod event_log;
mod files;
mod notification;
mod operation;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::time::Instant;

use jiff::Timestamp;

pub(crate) use app::{App, State};
pub(crate) use config::AppConfig;
pub(crate) use event_log::EventLog;
pub(crate) use files::{FileError, Files};
pub(crate) use notification::Notification;
pub(crate) use operation::{Operation, Refusal};

use app::{Outcome, Step};
use notification::Notifications;

use crate::fault::{Install, Kept};
use crate::ledger::Effect;
use crate::options::{Options, Resources, StopsTo};

/// All apps of a device.
#[derive(Debug)]
pub(crate) struct Iox {
    pub(crate) options: Options,
    /// `true` while app hosting is enabled; otherwise it lists no apps and accepts no operation.
    pub(crate) enabled: bool,
    pub(crate) apps: Vec<App>,
    pub(crate) event_log: EventLog,
    pub(crate) notifications: Notifications,
    /// Files that `copy` has brought.
    pub(crate) files: Files,
    /// The behaviour of the next installs: a part of the app's name or package, the number of installs, and the
    /// behaviour.
    planned: Vec<(String, usize, Install)>,
    /// The number of interfaces assigned so far.
    interfaces: u32,
}

impl Iox {
    pub(crate) fn new(options: Options, now: Instant, clock: Timestamp) -> Self {
        let notifications = Notifications::new(&options.name);
        let mut iox = Self {
            options,
            enabled: true,
            apps: Vec::new(),
            event_log: EventLog::new(now, clock),
            notifications,
            files: Files::new(),
            planned: Vec::new(),
            interfaces: 0,
        };
        iox.notifications.add(clock, Notification::iox_enabled());
        iox
    }

    pub(crate) fn app(&self, name: &str) -> Option<&App> {
        self.apps.iter().find(|app| app.name == name)
    }

    fn app_mut(&mut self, name: &str) -> Option<&mut App> {
        self.apps.iter_mut().find(|app| app.name == name)
    }

    /// The next `times` installs of an app in whose name or package `part` occurs go like this.
    pub(crate) fn plan(&mut self, part: &str, times: usize, install: Install) {
        self.planned.push((part.to_owned(), times, install));
    }

    /// Brings all apps to the state that they have at `now`.
    pub(crate) fn advance(&mut self, config: AppConfig<'_>, now: Instant) {
        loop {
            let due = self.apps.iter().filter_map(|app| Some((app.next.as_ref()?.0, app.name.clone())));
            match due.min() {
                Some((at, name)) if at <= now => self.step(&name, config, at),
                _ => return,
            }
        }
    }

    /// One app does what it was to do by then.
    fn step(&mut self, name: &str, config: AppConfig<'_>, at: Instant) {
        let Some((_, step)) = self.app_mut(name).and_then(|app| app.next.take()) else { return };
        match step {
            Step::Install(Outcome::Deployed) => {
                self.become_state(name, State::Deployed, Effect::Installed, at);
                self.notify(at, Notification::passed("install", name, "deployed"));
            }
            Step::Install(Outcome::Nothing(reason)) => {
                self.apps.retain(|app| app.name != name);
                if let Some(reason) = &reason {
                    self.notify(at, Notification::failed("install", name, reason, "uninstalled"));
                }
                self.event_log.enter(at, name, Effect::InstallFailed(reason));
            }
            Step::Install(Outcome::Error(reason)) => {
                self.notify(at, Notification::failed("install", name, &reason, "uninstalled"));
                self.become_state(name, State::Error, Effect::InstallFailed(Some(reason)), at);
            }
            Step::Activate => self.activate(name, config, at),
            Step::Start => self.start(name, config, at),
            Step::Stop => {
                let state = match self.options.stops_to {
                    StopsTo::Activated => State::Activated,
                    StopsTo::Stopped => State::Stopped,
                };
                self.become_state(name, state, Effect::Stopped, at);
                self.notify(at, Notification::passed("no-start", name, "stopped"));
                return self.halt(name);
            }
            Step::Deactivate => {
                self.become_state(name, State::Deployed, Effect::Deactivated, at);
                self.notify(at, Notification::passed("deactivate", name, "deployed"));
                return self.halt(name);
            }
            Step::Uninstall => {
                let installing = self.app(name).is_some_and(|app| app.state == State::Installing);
                self.apps.retain(|app| app.name != name);
                self.notify(at, Notification::passed("uninstall", name, "uninstalled"));
                let cancelled = || Effect::InstallFailed(Some("it was cancelled".to_owned()));
                self.event_log.enter(at, name, if installing { cancelled() } else { Effect::Uninstalled });
            }
        }
        self.go_on(name, config, at);
    }

    /// An app that was told to stop does not start by itself, whatever is written to its configuration.
    fn halt(&mut self, name: &str) {
        if let Some(app) = self.app_mut(name) {
            app.stuck = true;
        }
    }

    /// An app that is to start by itself takes its next step.
    pub(crate) fn go_on(&mut self, name: &str, config: AppConfig<'_>, at: Instant) {
        if !self.options.auto_start || !config.starts(name) {
            return;
        }
        let times = self.options.times;
        let Some(app) = self.app_mut(name) else { return };
        if app.next.is_none() && !app.stuck {
            app.next = match app.state {
                State::Deployed => Some((at + times.activate, Step::Activate)),
                State::Activated => Some((at + times.start, Step::Start)),
                _ => None,
            };
            app.by_itself |= app.next.is_some();
        }
    }

    fn activate(&mut self, name: &str, config: AppConfig<'_>, at: Instant) {
        let wanted = config.profile(name);
        let left = self.left(config);
        let short = [
            (wanted.cpu_units > left.cpu_units, "CPU"),
            (wanted.memory_mb > left.memory_mb, "memory"),
            (wanted.disk_mb > left.disk_mb, "disk"),
        ];
        if let Some((_, what)) = short.into_iter().find(|(short, _)| *short) {
            let reason = format!("not enough {what} is available to activate {name}");
            self.notify(at, Notification::failed("activate", name, &reason, "deployed"));
            self.event_log.enter(at, name, Effect::ActivationFailed(reason));
            // Else it would try for ever.
            if let Some(app) = self.app_mut(name) {
                app.stuck = true;
            }
            return;
        }
        self.become_state(name, State::Activated, Effect::Activated, at);
        self.notify(at, Notification::passed("activate", name, "activated"));
    }

    fn start(&mut self, name: &str, config: AppConfig<'_>, at: Instant) {
        let fixed = config.static_address(name);
        let taken: Vec<_> =
            self.apps.iter().filter_map(|app| Some((app.address?.0, app.name.clone()))).collect();
        let address = fixed.or_else(|| {
            let free = |address: &Ipv4Addr| taken.iter().all(|(taken, _)| taken != address);
            self.options.dhcp_pool.hosts().skip(1).find(free)
        });
        let delay = if fixed.is_some() { std::time::Duration::ZERO } else { self.options.times.address };
        self.become_state(name, State::Running, Effect::Started, at);
        if let Some((_, other)) = taken.into_iter().find(|(taken, _)| Some(*taken) == address) {
            self.event_log.enter(at, name, Effect::AddressConflict(other));
        }
        if let Some(app) = self.app_mut(name) {
            app.started = Some(at);
            app.address = address.map(|address| (address, at + delay));
        }
        self.notify(at, Notification::passed("start", name, "running"));
    }

    fn become_state(&mut self, name: &str, state: State, effect: Effect, at: Instant) {
        if let Some(app) = self.app_mut(name) {
            app.state = state;
            app.address = None;
            app.started = None;
        }
        self.event_log.enter(at, name, effect);
    }

    fn notify(&mut self, at: Instant, notification: Notification) {
        self.notifications.add(self.event_log.clock(at), notification);
    }

    /// The resources not reserved by active apps.
    pub(crate) fn left(&self, config: AppConfig<'_>) -> Resources {
        let active = self.apps.iter().filter(|app| app.is_active());
        active.fold(self.options.resources, |left, app| {
            let used = config.profile(&app.name);
            Resources {
                cpu_units: left.cpu_units.saturating_sub(used.cpu_units),
                memory_mb: left.memory_mb.saturating_sub(used.memory_mb),
                disk_mb: left.disk_mb.saturating_sub(used.disk_mb),
            }
        })
    }

    /// A running app ends by itself. False, where there is none of that name.
    pub(crate) fn crash(&mut self, name: &str, at: Instant) -> bool {
        let runs = self.app(name).is_some_and(|app| app.state == State::Running && app.next.is_none());
        if runs {
            self.become_state(name, State::Stopped, Effect::Crashed, at);
            self.notify(at, Notification::failed("unsolicited", name, "the app has ended", "stopped"));
        }
        runs
    }

    /// Its operational data tell this state, whatever is true; None: the true one again.
    pub(crate) fn show(&mut self, name: &str, state: Option<&str>) {
        if let Some(app) = self.app_mut(name) {
            app.shown = state.map(str::to_owned);
        }
    }

    /// The device is up again at `at`.
    pub(crate) fn reboot(&mut self, kept: Kept, config: AppConfig<'_>, at: Instant) {
        for app in std::mem::take(&mut self.apps) {
            if app.state == State::Installing {
                let reason = "the device was restarted".to_owned();
                self.event_log.enter(at, &app.name, Effect::InstallFailed(Some(reason)));
            } else if kept != Kept::Apps || app.is_leaving() {
                self.event_log.enter(at, &app.name, Effect::Forgotten);
            } else {
                self.apps.push(App {
                    state: State::Deployed,
                    stuck: false,
                    next: None,
                    address: None,
                    started: None,
                    ..app
                });
            }
        }
        let names: Vec<_> = self.apps.iter().map(|app| app.name.clone()).collect();
        for name in &names {
            self.go_on(name, config, at);
        }
    }
}
