//! One app: its state, and what it will do next.

use std::net::Ipv4Addr;
use std::time::Instant;

/// An app that is installed, or is being installed.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) state: State,
    /// What it does next, and when. While there is something, no operation is taken.
    pub(crate) next: Option<(Instant, Step)>,
    /// Whether what it does next, or has done last, nobody told it: it starts by itself.
    pub(crate) by_itself: bool,
    /// What its MAC address is made of.
    pub(crate) interface: u32,
    /// Its address, and since when it is known.
    pub(crate) address: Option<(Ipv4Addr, Instant)>,
    /// Since when it runs.
    pub(crate) started: Option<Instant>,
    /// The state that its operational data tell instead of the true one.
    pub(crate) shown: Option<String>,
    /// It cannot be activated, and does not try by itself any more.
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

/// What comes of an install.
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
    pub(crate) fn told(&self) -> &str {
        self.shown.as_deref().unwrap_or(self.state.text())
    }

    /// Whether it holds what it has reserved.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Activated | State::Running | State::Stopped)
    }

    /// Who is to blame that it is not where an operation expects it, as a refusal tells it.
    pub(crate) fn blame(&self) -> &'static str {
        if self.by_itself { " by its own start" } else { "" }
    }

    /// Whether it is being uninstalled.
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
