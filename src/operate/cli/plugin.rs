//! `kubectl staffetta`: the program as a plug-in of kubectl. kubectl runs it under the name `kubectl-staffetta`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{Parser, Subcommand};

use super::CommandError;
use super::arguments::OutputArguments;
use super::check::{CheckArguments, check};
use super::explain::{ExplainArguments, explain};
use super::log_level::{LogLevelArguments, log_level};
use super::request::{AdminClient, LeaderArguments, block_on};
use super::status::{StatusArguments, status};
#[cfg(feature = "top")]
use super::top::{TopArguments, top};
use crate::base::version::VERSION;

/// Shows the state of staffetta's controller in a cluster, with the rights of your kubeconfig.
///
/// The commands find the replica that leads by its Lease, and reach it by a port-forward to its pod. Your user needs the cluster role
/// `staffetta-operator` in the namespace of the controller.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl staffetta",
    bin_name = "kubectl staffetta",
    version,
    disable_help_subcommand = true
)]
pub(super) struct PluginCommandLine {
    #[command(subcommand)]
    command: PluginCommand,
    #[command(flatten)]
    leader: LeaderArguments,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Checks the cluster before an installation (`--pre`), or the controller and its external systems.
    Check(CheckArguments),
    /// Shows the state of the controller and of the objects in its queues, or of one object.
    Status(StatusArguments),
    /// Shows the way of an object through the chain, why it does not get on, and what would help.
    Explain(ExplainArguments),
    /// Shows the watches, the queues, the rates and the slowest objects, refreshed in the terminal.
    #[cfg(feature = "top")]
    Top(TopArguments),
    /// Shows the log level of the controller, or changes it until the controller ends.
    LogLevel(LogLevelArguments),
    /// Shows the version of this program and what it was built with.
    Version(OutputArguments),
}

/// Returns `true` if the program was started as the plug-in of kubectl. `words` is the command line.
pub(super) fn is_plugin(words: &[OsString]) -> bool {
    words
        .first()
        .is_some_and(|program| Path::new(program).file_stem().is_some_and(|name| name == "kubectl-staffetta"))
}

/// Runs a command of the kubectl plug-in and writes its result to `output`.
pub(super) fn execute(command_line: PluginCommandLine, output: &mut impl Write) -> Result<(), CommandError> {
    let PluginCommandLine { command, leader } = command_line;
    let client = || AdminClient::of_leader(leader.clone());
    block_on(async {
        match command {
            PluginCommand::Version(OutputArguments { format }) => {
                Ok(format.write(&VERSION, || VERSION.to_string(), output)?)
            }
            PluginCommand::Check(arguments) => check(arguments, leader.clone(), output).await,
            PluginCommand::Status(arguments) => status(arguments, &client().await?, output).await,
            PluginCommand::Explain(arguments) => explain(arguments, &client().await?, output).await,
            #[cfg(feature = "top")]
            PluginCommand::Top(arguments) => top(arguments, &client().await?, output).await,
            PluginCommand::LogLevel(arguments) => log_level(arguments, &client().await?, output).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_name_of_the_program_makes_it_the_plug_in() {
        let is_plugin = |program: &str| is_plugin(&[program.into(), "status".into()]);
        assert!(is_plugin("kubectl-staffetta") && is_plugin("/usr/bin/kubectl-staffetta"));
        assert!(!is_plugin("staffetta") && !is_plugin("/usr/bin/kubectl"));
    }

    #[test]
    fn the_command_line_of_the_plug_in_is_well_formed() {
        PluginCommandLine::command().debug_assert();
    }
}
