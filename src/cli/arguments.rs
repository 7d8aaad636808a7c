//! The arguments of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;

use crate::config::TimeSpan;
use crate::state::PhaseName;

/// A Kubernetes controller: passes the events of a cluster through a chain of handlers to drivers of external systems.
#[derive(Debug, Parser)]
#[command(name = "staffetta", version, disable_help_subcommand = true)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

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
    pub(super) command: PluginCommand,
    #[command(flatten)]
    pub(super) leader: LeaderArguments,
}

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Shows the state of the controller and of the objects in its queues, or of one object.
    Status(StatusArguments),
    /// Shows the way of an object through the chain, why it does not get on, and what would help.
    Explain(ExplainArguments),
    /// Shows the log level of the controller, or changes it until the controller ends.
    LogLevel(LogLevelArguments),
    /// Shows the version of this program and what it was built with.
    Version(VersionArguments),
}

/// The way to the leader.
#[derive(Debug, Args)]
pub(super) struct LeaderArguments {
    /// The kubeconfig file. If not set: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. If not set: its current context.
    #[arg(long, value_name = "NAME", global = true)]
    pub(super) context: Option<String>,
    /// The namespace in which the controller runs.
    #[arg(long, value_name = "NAMESPACE", default_value = "staffetta", global = true)]
    pub(super) controller_namespace: String,
    /// The name of the Lease of the controller (`leader_election.lease_name`).
    #[arg(long, value_name = "NAME", default_value = "staffetta", global = true)]
    pub(super) lease_name: String,
    /// The port of the admin server (`admin.listen`) in the pod.
    #[arg(long, value_name = "PORT", default_value_t = 8082, value_parser = value_parser!(u16).range(1..), global = true)]
    pub(super) admin_port: u16,
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
    Status {
        #[command(flatten)]
        arguments: StatusArguments,
        #[command(flatten)]
        server: AdminServer,
    },
    /// Shows the way of an object through the chain of a running controller, why it does not get on, and what would help.
    Explain {
        #[command(flatten)]
        arguments: ExplainArguments,
        #[command(flatten)]
        server: AdminServer,
    },
    /// Shows the log level of a running controller, or changes it until the controller ends.
    LogLevel {
        #[command(flatten)]
        arguments: LogLevelArguments,
        #[command(flatten)]
        server: AdminServer,
    },
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
    /// Shows the version of the program and what it was built with.
    Version(VersionArguments),
}

#[derive(Debug, Args)]
pub(super) struct LogLevelArguments {
    /// The new level: `off`, `error`, `warn`, `info`, `debug` or `trace`. Levels for parts of the program may follow after commas:
    /// `info,staffetta_network=debug`.
    pub(super) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct VersionArguments {
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: TextFormat,
}

#[derive(Debug, Args)]
pub(super) struct DryRunArguments {
    /// Print the planned changes and exit, without a write to Kubernetes or to an external system. The exit code is 0 if all
    /// changes could be planned, else 1.
    #[arg(id = "dry_run", long = "dry-run")]
    pub(super) enabled: bool,
    /// The format of the plan.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t, requires = "dry_run")]
    pub(super) output: TextFormat,
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

/// The output format of commands that write text rather than tables.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum TextFormat {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs.
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
    /// Show only this object, with all details: `TYPE/NAME`, `TYPE NAME` or `NAME`, such as `pod/web-1`.
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    pub(super) object: Vec<String>,
    /// Show only objects of this namespace; empty for cluster-scoped objects.
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Show only objects of this kind, such as `pod` (case-insensitive).
    #[arg(long)]
    pub(super) kind: Option<String>,
    /// Show only objects of this handler.
    #[arg(long)]
    pub(super) handler: Option<String>,
    /// Show only objects in this phase.
    #[arg(long)]
    pub(super) phase: Option<PhaseName>,
    /// Wait until the object exists and every handler has handled it.
    #[arg(long, requires = "object", conflicts_with = "phase")]
    pub(super) wait: bool,
    /// The time limit of `--wait`.
    #[arg(long, value_name = "TIME", default_value = "2m", requires = "wait")]
    pub(super) timeout: TimeSpan,
    /// Show every object that is not handled yet. By default, without a name or a phase, only failing objects and objects that
    /// stay in one phase for more than 5 seconds are shown.
    #[arg(long)]
    pub(super) all: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// The object: `TYPE/NAME` or `TYPE NAME`, such as `pod/web-1`.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    pub(super) object: Vec<String>,
    /// The namespace of the object.
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: TextFormat,
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

/// The output format of `status`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum OutputFormat {
    /// Tables for people, as wide as the terminal.
    Table,
    /// Tables with all columns, each as wide as its text.
    Wide,
    /// JSON for programs.
    Json,
    /// YAML for programs.
    Yaml,
}

/// Replaces the option `--version` by the command `version` if more options follow: clap would print the version and ignore them.
pub(super) fn with_version_command(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.into_iter().collect();
    if words.len() > 2 && (words[1] == "--version" || words[1] == "-V") {
        words[1] = "version".into();
    }
    words
}
