//! The state of a device: its configuration, its apps, its account, and its planned faults. Pure: the time is an argument.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::account::Account;
use crate::counts::Counts;
use crate::fault::{Fault, Install, Kept, Requests};
use crate::iox::{AppConfig, Iox, Operation, Refusal};
use crate::ledger::Effect;
use crate::options::Options;
use crate::plan::Plan;
use crate::view::HostedApp;

/// A device.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) iox: Iox,
    pub(crate) account: Account,
    pub(crate) counts: Counts,
    pub(crate) plan: Plan,
    /// The data below `app-hosting-cfg-data`.
    config: Value,
    booted: Timestamp,
}

/// An app would lose its configuration while it is installed.
#[derive(Debug)]
pub(crate) struct InUse(pub(crate) String);

impl Machine {
    pub(crate) fn new(options: Options, now: Instant, clock: Timestamp) -> Self {
        let account =
            Account::new(&options.username, &options.password, options.lock_after, options.lock_time);
        Self {
            iox: Iox::new(options, now, clock),
            account,
            counts: Counts::default(),
            plan: Plan::default(),
            config: Value::Object(Map::new()),
            booted: clock,
        }
    }

    /// Brings all apps to the state that they have at `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.iox.advance(AppConfig(&self.config), now);
    }

    /// Reads what there is: the configuration, the apps, and when the device was started.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Value, &Iox, Timestamp) -> T) -> T {
        look(&self.config, &self.iox, self.booted)
    }

    /// Makes this the configuration, unless an app that is installed would lose its own.
    pub(crate) fn commit(&mut self, config: Value, now: Instant) -> Result<(), InUse> {
        let (before, after) = (AppConfig(&self.config), AppConfig(&config));
        let names: BTreeSet<_> = before.names().chain(after.names()).map(str::to_owned).collect();
        let installed = |name: &&String| after.app(name).is_none() && self.iox.app(name).is_some();
        if let Some(name) = names.iter().find(installed) {
            let why = format!("the application {name} is installed");
            self.iox.event_log.enter(now, name, Effect::Refused("delete".into(), why.clone()));
            return Err(InUse(why));
        }
        for name in &names {
            let effect = match (before.app(name), after.app(name)) {
                (None, Some(_)) => Effect::Configured,
                (Some(_), None) => Effect::Unconfigured,
                (before, after) if before != after => Effect::Reconfigured,
                _ => continue,
            };
            self.iox.event_log.enter(now, name, effect);
        }
        self.config = config;
        for name in &names {
            self.iox.go_on(name, AppConfig(&self.config), now);
        }
        Ok(())
    }

    /// Begins an operation on an app.
    pub(crate) fn operate(&mut self, operation: &Operation, now: Instant) -> Result<(), Refusal> {
        self.iox.operate(operation, AppConfig(&self.config), now)
    }

    /// It goes down, and is up again at `at`.
    pub(crate) fn reboot(&mut self, kept: Kept, now: Instant, at: Instant) {
        self.advance(now);
        self.iox.reboot(kept, AppConfig(&self.config), at);
        if kept == Kept::Nothing {
            let names: Vec<_> = AppConfig(&self.config).names().map(str::to_owned).collect();
            for name in &names {
                self.iox.event_log.enter(at, name, Effect::Unconfigured);
            }
            self.config = Value::Object(Map::new());
        }
        self.booted = self.iox.event_log.clock(at);
    }

    /// The apps that are configured or installed, by name.
    pub(crate) fn apps(&mut self, now: Instant) -> Vec<HostedApp> {
        self.advance(now);
        let config = AppConfig(&self.config);
        let installed = self.iox.apps.iter().map(|app| app.name.as_str());
        let names: BTreeSet<_> = config.names().chain(installed).collect();
        let app = |name: &str| HostedApp {
            name: name.to_owned(),
            configured: config.app(name).is_some(),
            package: self.iox.app(name).map(|app| app.package.clone()),
            state: self.iox.app(name).map(|app| app.state.text().to_owned()),
            run_opts: config.run_opts(name).into_iter().map(str::to_owned).collect(),
            address: self.iox.app(name).and_then(|app| app.address_at(now)),
        };
        names.into_iter().map(app).collect()
    }

    /// Plans the behaviour of the next installs of matching apps.
    pub(crate) fn plan_installs(&mut self, part: &str, times: usize, install: Install) {
        self.iox.plan(part, times, install);
    }

    /// Plans faults for the next requests.
    pub(crate) fn plan_fault(&mut self, requests: Requests, times: usize, fault: Fault) {
        self.plan.add(requests, times, fault);
    }
}
