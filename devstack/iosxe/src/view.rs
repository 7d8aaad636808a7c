//! The apps of a device as tests see them.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// An app that is configured, installed, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedApp {
    /// The name of the app.
    pub name: String,
    /// `true` if the app is configured.
    pub configured: bool,
    /// The package from which the app was installed; `None` if it is not installed.
    pub package: Option<String>,
    /// The state of the app; `None` if it is not installed.
    pub state: Option<String>,
    /// The lines of its Docker run options.
    pub run_opts: Vec<String>,
    /// The address of the app; `None` if it is not known.
    pub address: Option<Ipv4Addr>,
}

impl HostedApp {
    /// Returns the value of a label: the text after `--label KEY=` in a line of `run_opts`.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.run_opts
            .iter()
            .find_map(|line| line.strip_prefix("--label ")?.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns `true` if the app is running.
    pub fn runs(&self) -> bool {
        self.state.as_deref() == Some("RUNNING")
    }
}
