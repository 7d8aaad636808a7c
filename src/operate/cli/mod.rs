//! The command line. Results go to standard output, errors to standard error.
//!
//! The exit code is 0 for success, 1 for a failure and 2 for bad usage or a wrong configuration.

mod arguments;
#[cfg(feature = "remote")]
mod check;
mod cleanup;
mod commands;
mod config;
mod dry_run;
mod explain;
mod line;
mod log_level;
#[cfg(feature = "network")]
mod migrate;
mod object;
#[cfg(feature = "remote")]
mod plugin;
mod report;
mod request;
mod status;
mod table;
#[cfg(feature = "top")]
mod top;
mod uninstall;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_handler::{Registry, causes};

use crate::base::config::ConfigurationError;
use crate::control::run::RunError;
use commands::CommandLine;
#[cfg(feature = "remote")]
use plugin::PluginCommandLine;
use request::RequestError;

/// Parses the command line and runs the command. `registry` contains the handlers, drivers and configuration sections that the program
/// knows.
pub fn main(registry: Registry) -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let mut output = io::stdout();
    let result = execute(words, registry, &mut output);
    let flushed = output.flush();
    match result.and_then(|()| Ok(flushed?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // `eprintln!` panics if standard error cannot be written, for example if its terminal was closed.
            let _ = writeln!(io::stderr(), "{}", error.message());
            error.exit_code()
        }
    }
}

/// Runs the command of the command line `words`. kubectl starts the program under another name, which has commands of its own.
fn execute(words: Vec<OsString>, registry: Registry, output: &mut impl Write) -> Result<(), CommandError> {
    #[cfg(feature = "remote")]
    if plugin::is_plugin(&words) {
        return plugin::execute(PluginCommandLine::parse_from(words), output);
    }
    commands::execute(CommandLine::parse_from(words).command, registry, std::env::vars_os(), output)
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The configuration cannot be loaded.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// A handler cannot be built with the configuration (`config check`).
    #[error(transparent)]
    InvalidSetup(RunError),
    /// A command that connects to the cluster failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The command could not do everything, or a check failed. Its output shows the reasons.
    #[error("{0}")]
    Incomplete(String),
    /// The command line, or the configuration with it, cannot be used. The text says how to correct it.
    #[error("{0}")]
    Usage(String),
    /// The request to the admin server failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The terminal cannot be used for the view of `top`.
    #[cfg(feature = "top")]
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
    /// Standard output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Fails with [`CommandError::Incomplete`] and `message` if `complete` is `false`.
    fn unless(complete: bool, message: impl Into<String>) -> Result<(), Self> {
        if complete { Ok(()) } else { Err(Self::Incomplete(message.into())) }
    }

    /// Returns the text for standard error. Each mistake in the configuration is one line, in the form of compiler messages, which
    /// editors recognize.
    fn message(&self) -> String {
        match self {
            Self::Configuration(error @ ConfigurationError::Mistakes(_)) => error.to_string(),
            error => format!("error: {}", causes(error)),
        }
    }

    /// Returns the exit code of the program: 2 if the user has to correct the command line or the configuration, otherwise 1.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(ConfigurationError::Unreadable { .. } | ConfigurationError::Mistakes(_))
            | Self::InvalidSetup(_)
            | Self::Usage(_)
            | Self::Request(RequestError::Rejected(_)) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}
