//! The apps of a device as tests see them.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// An app that is configured, installed, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedApp {
    /// Its name.
    pub name: String,
    /// `true` if it is configured.
    pub configured: bool,
    /// The package it was installed from, if it is installed.
    pub package: Option<String>,
    /// Its state, where it is installed.
    pub state: Option<String>,
    /// The lines of its options for docker.
    pub run_opts: Vec<String>,
    /// Its address, where one is known.
    pub address: Option<Ipv4Addr>,
}

impl HostedApp {
    /// The value of one of its labels: what follows `--label KEY=` on a line.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.run_opts
            .iter()
            .find_map(|line| line.strip_prefix("--label ")?.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns `true` if it is running.
    pub fn runs(&self) -> bool {
        self.state.as_deref() == Some("RUNNING")
    }
}
