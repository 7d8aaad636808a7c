//! An app: its state, and the changes that are due in the future.

use std::net::Ipv4Addr;
use std::time::Instant;

/// An app that is installed, or is being installed.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) state: State,
    /// The next step and its time. No operation is accepted while one is pending.
    pub(crate) next: Option<(Instant, Step)>,
    /// `true` if the pending or last step was started by the device itself.
    pub(crate) by_itself: bool,
    /// The number from which its MAC address is derived.
    pub(crate) interface: u32,
    /// Its address, and since when it is known.
    pub(crate) address: Option<(Ipv4Addr, Instant)>,
    /// The time at which it started.
    pub(crate) started: Option<Instant>,
    /// The state that its operational data tell instead of the true one.
    pub(crate) shown: Option<String>,
    /// It was told to stop, or cannot be activated, and does not go on by itself.
    pub(crate) stuck: bool,
}

/// The states of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Installing,
    Deployed,
    Activated,
    Running,
    Stopped,
    Error,
}

/// A change of state that takes its time.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Install(Outcome),
    Activate,
    Start,
    Stop,
    Deactivate,
    Uninstall,
}

/// The result of an install.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Deployed,
    /// No app, and the reason, where the device tells one.
    Nothing(Option<String>),
    /// An app in the state ERROR.
    Error(String),
}

impl State {
    /// As operational data have it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Installing => "INSTALLING",
            Self::Deployed => "DEPLOYED",
            Self::Activated => "ACTIVATED",
            Self::Running => "RUNNING",
            Self::Stopped => "STOPPED",
            Self::Error => "ERROR",
        }
    }
}

impl App {
    /// The state that its operational data tell.
    pub(crate) fn reported(&self) -> &str {
        self.shown.as_deref().unwrap_or(self.state.text())
    }

    /// Returns `true` if the app holds its reserved resources.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Activated | State::Running | State::Stopped)
    }

    /// The cause that a refusal names when the app is in an unexpected state.
    pub(crate) fn blame(&self) -> &'static str {
        if self.by_itself { " by its own start" } else { "" }
    }

    /// Returns `true` during an uninstall.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.next, Some((_, Step::Uninstall)))
    }

    /// The address that is known of it at `now`.
    pub(crate) fn address_at(&self, now: Instant) -> Option<Ipv4Addr> {
        self.address.filter(|(_, known)| *known <= now).map(|(address, _)| address)
    }

    /// The MAC address of its one interface.
    pub(crate) fn mac(&self) -> String {
        let [_, high, middle, low] = self.interface.to_be_bytes();
        format!("52:54:dd:{high:02x}:{middle:02x}:{low:02x}")
    }
}
