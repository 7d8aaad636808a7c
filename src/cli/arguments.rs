//! The arguments that several commands share.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The configuration file. If not set: /etc/staffetta/staffetta.toml if it exists, else the defaults.
    #[arg(long, value_name = "FILE", env = "STAFFETTA_CONFIG", hide_env_values = true)]
    pub(super) config: Option<PathBuf>,
}

/// The admin server to which the request is sent.
#[derive(Debug, Args)]
pub(super) struct AdminServer {
    /// The URL of the controller's admin server, such as `http://127.0.0.1:8082`. If not set: the address of `admin.listen`.
    #[arg(long, value_name = "URL", env = "STAFFETTA_ADMIN", hide_env_values = true)]
    pub(super) admin: Option<String>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// The output format of commands that write text rather than tables.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum TextFormat {
    /// Text for people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// JSON for programs.
    Json,
}

impl TextFormat {
    /// Writes `value` to `output` in this format.
    pub(super) fn write(self, value: &(impl Display + Serialize), output: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Text => write!(output, "{value}"),
            Self::Json => writeln!(output, "{}", serde_json::to_string_pretty(value)?),
        }
    }
}
