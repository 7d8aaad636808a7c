//! What may be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::Span;
use crate::state::PhaseName;

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
    /// Shows how a running controller is, which object is where in the chain, and why.
    Status(StatusArguments),
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
    #[arg(id = "dry_run", long = "dry-run")]
    pub(super) asked_for: bool,
    /// The form of the plan.
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t, requires = "dry_run")]
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

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// Shows only objects of this name, and all that is known of them.
    pub(super) name: Option<String>,
    /// Shows only objects of this namespace.
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Shows only objects of this kind: `pod`.
    #[arg(long)]
    pub(super) kind: Option<String>,
    /// Shows only what this handler has to do.
    #[arg(long)]
    pub(super) handler: Option<String>,
    /// Shows only objects that are in this phase.
    #[arg(long)]
    pub(super) phase: Option<PhaseName>,
    /// Shows all that is not handled yet. Without it, or a name or a phase: objects in trouble, and those that have been
    /// in one phase for more than 5 seconds.
    #[arg(long)]
    pub(super) all: bool,
    /// The form of the answer.
    #[arg(short, long, value_enum, default_value_t = OutputForm::Table)]
    pub(super) output: OutputForm,
    /// Where the controller's admin server listens: `http://127.0.0.1:8082`. Without it: what `admin.listen` says.
    #[arg(long, value_name = "URL", env = "STAFFETTA_ADMIN", hide_env_values = true)]
    pub(super) admin: Option<String>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum OutputForm {
    /// For people.
    Table,
    /// For machines.
    Json,
}
