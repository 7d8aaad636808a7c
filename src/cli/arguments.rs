//! The arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::TimeSpan;
use crate::state::Query;

/// A Kubernetes controller: passes the events of a cluster through a chain of handlers to drivers of external systems.
#[derive(Debug, Parser)]
#[command(name = "staffetta", version, disable_help_subcommand = true)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs the controller until SIGTERM.
    Run {
        #[command(flatten)]
        file: ConfigFile,
        /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRunArguments,
    },
    /// Runs the daemon of the CNI plugin on a node until SIGTERM.
    CniDaemon {
        #[command(flatten)]
        file: ConfigFile,
        /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
    /// Checks, shows and documents the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Lists all handlers and shows which are enabled.
    Handlers(ConfigFile),
    /// Lists all drivers and shows which are chosen.
    Drivers(ConfigFile),
    /// Shows the state of a running controller and of the objects in its queues.
    Status(StatusArguments),
    /// Lists what a cluster that no longer exists left in external systems, and releases it with `--apply`.
    Cleanup(CleanupArguments),
    /// Removes the controller's finalizers from all objects with `--apply`, and lists what stays in external systems.
    Uninstall(UninstallArguments),
    /// Takes a cluster over from another controller.
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Prints a completion script for a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct DryRunArguments {
    /// Print the planned changes and exit, without a write to Kubernetes or to an external system. The exit code is 0 if all
    /// changes could be planned, else 1.
    #[arg(id = "dry_run", long = "dry-run")]
    pub(super) enabled: bool,
    /// The format of the plan.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t, requires = "dry_run")]
    pub(super) output: PlanFormat,
    /// The time limit of the dry run.
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "dry_run")]
    pub(super) timeout: TimeSpan,
}

#[derive(Debug, Args)]
pub(super) struct CleanupArguments {
    /// The cluster id of the other cluster, as its resources carry it in their marks.
    #[arg(long, value_name = "ID")]
    pub(super) cluster_id: String,
    /// Release the resources. Without it, their owners are only listed.
    #[arg(long)]
    pub(super) apply: bool,
    /// The kubeconfig file of an existing cluster. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

#[derive(Debug, Args)]
pub(super) struct UninstallArguments {
    /// Remove the finalizers of the controller, and its virtual nodes. Without it, they are only listed.
    #[arg(long)]
    pub(super) apply: bool,
    /// The Deployment of the controller, which is scaled to 0 first. It is in the namespace of the Lease.
    #[arg(long, value_name = "DEPLOYMENT", requires = "apply")]
    pub(super) stop: Option<String>,
    /// The time limit for the controller to stop.
    #[arg(long, value_name = "TIME", default_value = "2m", requires = "apply")]
    pub(super) timeout: TimeSpan,
    /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// The format of the plan of a dry run.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum PlanFormat {
    /// Text for people, one line per step.
    #[default]
    Text,
    /// JSON for programs, with everything that would be written.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Shows the steps that take a cluster over from Kuryr-Kubernetes, and executes them with `--apply`.
    Kuryr(MigrateArguments),
}

#[derive(Debug, Args)]
pub(super) struct MigrateArguments {
    /// Take the cluster over. Without it, the steps are only shown.
    #[arg(long)]
    pub(super) apply: bool,
    /// Also delete the ports that Kuryr's pools kept ready on the nodes of this cluster, and that no pod uses.
    #[arg(long)]
    pub(super) delete_idle_ports: bool,
    /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Reports every mistake in the file and the environment.
    Check(ConfigFile),
    /// Prints the options in effect and their origins: file, environment or default.
    Show(ConfigFile),
    /// Prints a file with every option, documented and commented out.
    Sample,
    /// Prints the JSON Schema of the file.
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The configuration file. If not set: /etc/staffetta/staffetta.toml if it exists, else the defaults.
    #[arg(long, value_name = "FILE", env = "STAFFETTA_CONFIG", hide_env_values = true)]
    pub(super) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    pub(super) query: Query,
    /// Show every object that is not handled yet. By default, without a name or a phase, only failing objects and objects that
    /// stay in one phase for more than 5 seconds are shown.
    #[arg(long)]
    pub(super) all: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
    /// The URL of the controller's admin server, such as `http://127.0.0.1:8082`. If not set: the address of `admin.listen`.
    #[arg(long, value_name = "URL", env = "STAFFETTA_ADMIN", hide_env_values = true)]
    pub(super) admin: Option<String>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// The output format of `status`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// Tables for people.
    Table,
    /// JSON for programs.
    Json,
}
