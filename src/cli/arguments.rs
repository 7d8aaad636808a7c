//! What may be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::Span;

/// Carries what happens in a Kubernetes cluster, through a chain of handlers, to the drivers of other worlds.
#[derive(Debug, Parser)]
#[command(name = "staffetta", version, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs the relay until SIGTERM.
    Run {
        #[command(flatten)]
        file: ConfigFile,
        /// The kubeconfig by which the API server is reached; goes before `kubernetes.kubeconfig`.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Checks, shows and explains the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Lists the handlers that exist, and whether they are enabled.
    Handlers(ConfigFile),
    /// Lists the drivers that exist, and whether they are chosen.
    Drivers(ConfigFile),
    /// Writes a script that completes this command line in a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct DryRun {
    /// Reads everything, writes nothing in Kubernetes or outside, prints what would be done, and ends: with 0 when all of it
    /// could be planned, 1 when not.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The form of the plan.
    #[arg(long, value_enum, value_name = "FORM", default_value_t, requires = "dry_run")]
    pub(super) output: PlanForm,
    /// How long the dry run may take.
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "dry_run")]
    pub(super) timeout: Span,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum PlanForm {
    /// For people: a line a step.
    #[default]
    Text,
    /// For programs, with all that would be written.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Finds every mistake in the file and the environment.
    Check(ConfigFile),
    /// Shows what holds, and whether it comes from the file, the environment or a default.
    Show(ConfigFile),
    /// Writes a file with every option, explained and commented out.
    Sample,
    /// Writes the JSON Schema of the file.
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The configuration file. Without it: /etc/staffetta/staffetta.toml if it exists, else the defaults.
    #[arg(long, value_name = "FILE", env = "STAFFETTA_CONFIG", hide_env_values = true)]
    pub(super) config: Option<PathBuf>,
}
