//! The operations of `Cisco-IOS-XE-rpc:app-hosting`, with the app states in which they are accepted.

use std::time::{Duration, Instant};

use super::Iox;
use super::app::{App, Outcome, State, Step};
use super::config::AppConfig;
use crate::fault::Install;
use crate::ledger::Effect;

/// The file systems and URL schemes from which packages are read.
const PLACES: [&str; 10] = [
    "flash:",
    "flash1:",
    "bootflash:",
    "harddisk:",
    "usb0:",
    "usb1:",
    "usbflash1:",
    "sdflash:",
    "http://",
    "https://",
];

/// An operation on an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Install { app: String, package: String },
    Activate(String),
    Start(String),
    Stop(String),
    Deactivate(String),
    Uninstall(String),
}

/// An operation is not for the state of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) tag: &'static str,
    pub(crate) message: String,
}

impl Operation {
    /// From the one member of the input; None, where it is none that exists.
    pub(crate) fn new(name: &str, app: &str, package: Option<&str>) -> Option<Self> {
        let app = app.to_owned();
        Some(match name {
            "install" => Self::Install { app, package: package?.to_owned() },
            "activate" => Self::Activate(app),
            "start" => Self::Start(app),
            "stop" => Self::Stop(app),
            "deactivate" => Self::Deactivate(app),
            "uninstall" => Self::Uninstall(app),
            _ => return None,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Install { .. } => "install",
            Self::Activate(_) => "activate",
            Self::Start(_) => "start",
            Self::Stop(_) => "stop",
            Self::Deactivate(_) => "deactivate",
            Self::Uninstall(_) => "uninstall",
        }
    }

    pub(crate) fn app(&self) -> &str {
        match self {
            Self::Install { app, .. }
            | Self::Activate(app)
            | Self::Start(app)
            | Self::Stop(app)
            | Self::Deactivate(app)
            | Self::Uninstall(app) => app,
        }
    }
}

impl Iox {
    /// Begins an operation; it takes its time. The ledger hears of a refusal.
    pub(crate) fn operate(
        &mut self,
        operation: &Operation,
        config: AppConfig<'_>,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.advance(config, now);
        let begun = self.begin(operation, now);
        if let Err(refusal) = &begun {
            let effect = Effect::Refused(operation.name().to_owned(), refusal.message.clone());
            self.event_log.enter(now, operation.app(), effect);
        }
        begun
    }

    fn begin(&mut self, operation: &Operation, now: Instant) -> Result<(), Refusal> {
        if !self.enabled {
            return Err(refusal(412, "operation-failed", "IOx is not enabled".to_owned()));
        }
        let times = self.options.times;
        let (after, step) = match operation {
            Operation::Install { app, package } => return self.begin_install(app, package, now),
            Operation::Activate(_) => (times.activate, Step::Activate),
            Operation::Start(_) => (times.start, Step::Start),
            Operation::Stop(_) => (times.stop, Step::Stop),
            Operation::Deactivate(_) => (times.deactivate, Step::Deactivate),
            Operation::Uninstall(_) => (times.uninstall, Step::Uninstall),
        };
        let name = operation.app();
        let Some(app) = self.app_mut(name) else {
            return Err(refusal(409, "data-missing", format!("{name} is not installed")));
        };
        // An uninstall cancels an install.
        let cancels = app.state == State::Installing && matches!(step, Step::Uninstall);
        if app.next.is_some() && !cancels {
            let message = format!("another operation on {name} is in progress{}", app.blame());
            return Err(refusal(409, "in-use", message));
        }
        if !fits(&step, app.state) {
            let (state, blame) = (app.state.text(), app.blame());
            let message = format!("cannot {} {name}: it is {state}{blame}", operation.name());
            return Err(refusal(412, "operation-failed", message));
        }
        (app.stuck, app.by_itself) = (false, false);
        app.next = Some((now + after, step));
        Ok(())
    }

    fn begin_install(&mut self, name: &str, package: &str, now: Instant) -> Result<(), Refusal> {
        if let Some(app) = self.app(name) {
            let message = format!("{name} is {} already", app.state.text());
            return Err(refusal(409, "in-use", message));
        }
        if !self.options.installs_urls && package.contains("://") {
            let message = format!("{package} is on no file system of this device");
            return Err(refusal(400, "invalid-value", message));
        }
        let (takes, outcome) = self.outcome(name, package, now);
        self.interfaces += 1;
        self.apps.push(App {
            name: name.to_owned(),
            package: package.to_owned(),
            state: State::Installing,
            next: Some((now + takes, Step::Install(outcome))),
            interface: self.interfaces,
            address: None,
            started: None,
            shown: None,
            stuck: false,
            by_itself: false,
        });
        self.event_log.enter(now, name, Effect::InstallBegan(package.to_owned()));
        Ok(())
    }

    /// Determines the duration and result of an install.
    fn outcome(&mut self, name: &str, package: &str, now: Instant) -> (Duration, Outcome) {
        let takes = self.options.times.install;
        let meant = |part: &str| name.contains(part) || package.contains(part);
        if let Some(place) = self.planned.iter().position(|(part, ..)| meant(part)) {
            let planned = &mut self.planned[place];
            planned.1 = planned.1.saturating_sub(1);
            let install = planned.2.clone();
            self.planned.retain(|(_, times, _)| *times > 0);
            return match install {
                Install::FailsInSilence => (takes, Outcome::Nothing(None)),
                Install::Fails(reason) => (takes, Outcome::Nothing(Some(reason))),
                Install::Takes(time) => (time, Outcome::Deployed),
                Install::Breaks(reason) => (takes, Outcome::Error(reason)),
            };
        }
        let working = self.apps.iter().filter(|app| app.state == State::Installing).count();
        if working >= self.options.parallel_installs {
            return (takes, Outcome::Nothing(None));
        }
        if self.exists(package, now) {
            (takes, Outcome::Deployed)
        } else {
            (takes, Outcome::Nothing(Some(format!("the package {package} cannot be read"))))
        }
    }

    /// Returns `true` if the package can be read.
    pub(crate) fn exists(&self, package: &str, now: Instant) -> bool {
        let readable = PLACES.iter().any(|place| package.starts_with(place));
        let known = self.options.packages.as_ref().is_none_or(|packages| packages.contains(package));
        readable && (known || self.files.get(package).is_some_and(|whole| *whole <= now))
    }
}

/// Returns `true` if an app in this state can take the step.
fn fits(step: &Step, state: State) -> bool {
    match step {
        Step::Install(_) => false,
        Step::Activate => state == State::Deployed,
        Step::Start => matches!(state, State::Activated | State::Stopped),
        Step::Stop => state == State::Running,
        Step::Deactivate => matches!(state, State::Activated | State::Stopped),
        Step::Uninstall => matches!(state, State::Deployed | State::Error | State::Installing),
    }
}

fn refusal(code: u16, tag: &'static str, message: String) -> Refusal {
    Refusal { code, tag, message }
}
