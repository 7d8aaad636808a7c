//! The command line. Output goes to standard output, errors to standard error.
//!
//! The exit code is 0 for success, 1 for a failure and 2 for bad usage or a wrong configuration.

mod arguments;
mod commands;
mod status;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_handler::{Registry, causes};

use crate::config::ConfigurationError;
use crate::run::RunError;
use arguments::CommandLine;

/// Parses the command line and runs the command, with the handlers, drivers and configuration sections in `registry`.
pub fn main(registry: Registry) -> ExitCode {
    let command = CommandLine::parse().command;
    let mut output = io::stdout();
    let result = commands::execute(command, registry, std::env::vars_os(), &mut output);
    let flushed = output.flush();
    match result.and_then(|()| Ok(flushed?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.message());
            error.exit_code()
        }
    }
}

/// A command that failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    #[error(transparent)]
    InvalidSetup(RunError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the plan is incomplete, or parts of it would fail; see the plan for details")]
    Incomplete,
    #[error(transparent)]
    Address(#[from] status::AddressError),
    #[error(transparent)]
    Request(#[from] status::RequestError),
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The text for standard error. Mistakes in the configuration are a line each, in the form of compiler messages, which editors
    /// recognize.
    fn message(&self) -> String {
        match self {
            Self::Configuration(error @ ConfigurationError::Mistakes(_)) => error.to_string(),
            error => format!("error: {}", causes(error)),
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(ConfigurationError::Unreadable { .. } | ConfigurationError::Mistakes(_))
            | Self::InvalidSetup(_)
            | Self::Address(_)
            | Self::Request(status::RequestError::Rejected(_)) => ExitCode::from(2),
            Self::Configuration(ConfigurationError::Schema(_) | ConfigurationError::Inconsistent(_))
            | Self::Request(_)
            | Self::Run(_)
            | Self::Incomplete
            | Self::Output(_) => ExitCode::FAILURE,
        }
    }
}
