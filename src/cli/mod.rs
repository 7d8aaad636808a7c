//! The command line. Answers go to standard output, errors to standard error.
//!
//! The program ends with 0 when it did what it was asked, 2 when it was asked wrongly (usage, configuration), 1 when it
//! failed.

mod answer;
mod arguments;
mod status;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_handler::{Registry, causes};

use crate::config::ConfigurationError;
use crate::run::RunError;
use arguments::Arguments;

/// The `main` of a program that has the handlers, drivers and sections in `registry`.
pub fn main(registry: Registry) -> ExitCode {
    let command = Arguments::parse().command;
    let mut output = io::stdout();
    let answered = answer::answer(command, registry, std::env::vars_os(), &mut output);
    let flushed = output.flush();
    match answered.and_then(|()| Ok(flushed?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.message());
            error.exit_code()
        }
    }
}

/// Why a command could not be done.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    #[error(transparent)]
    Unmakeable(RunError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the plan is not complete, or not all of it would succeed: it says where")]
    Incomplete,
    #[error(transparent)]
    Address(#[from] status::AddressError),
    #[error(transparent)]
    Ask(#[from] status::AskError),
    #[error("cannot write the answer")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Mistakes stand a line each, as compilers write them, so that an editor finds the places.
    fn message(&self) -> String {
        match self {
            Self::Configuration(ConfigurationError::Mistakes(mistakes)) => mistakes.to_string(),
            error => format!("error: {}", causes(error)),
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Configuration(ConfigurationError::Unreadable { .. } | ConfigurationError::Mistakes(_))
            | Self::Unmakeable(_)
            | Self::Address(_)
            | Self::Ask(status::AskError::Refused(_)) => ExitCode::from(2),
            Self::Configuration(ConfigurationError::Schema(_) | ConfigurationError::Unfit(_))
            | Self::Ask(_)
            | Self::Run(_)
            | Self::Incomplete
            | Self::Output(_) => ExitCode::FAILURE,
        }
    }
}
