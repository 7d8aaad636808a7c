//! Runs the commands of the command line.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;

#[cfg(feature = "completion")]
use clap::CommandFactory;
use clap::{Parser, Subcommand};
use futures_util::FutureExt;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{AdminServer, ClusterArguments, ConfigFile, OutputArguments, WithServer};
use super::cleanup::{CleanupArguments, cleanup};
use super::config::{ConfigCommand, ListArguments, config, drivers, handlers};
use super::dry_run::{DryRunArguments, dry_run};
use super::explain::{ExplainArguments, explain};
use super::log_level::{LogLevelArguments, log_level};
#[cfg(feature = "network")]
use super::migrate::{MigrateCommand, migrate_kuryr};
use super::report::write_report;
use super::request::{AdminClient, address, block_on};
use super::status::{StatusArguments, status};
#[cfg(feature = "top")]
use super::top::{TopArguments, top};
use super::uninstall::{UninstallArguments, uninstall};
use crate::base::config::{Configuration, ConfigurationError, FileSchema, choose_file};
use crate::base::version::VERSION;
#[cfg(feature = "cni")]
use crate::control::cni_daemon;
use crate::control::run::{run, with_client};
use crate::observe::check::check_systems;

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
        cluster: ClusterArguments,
        #[command(flatten)]
        dry_run: DryRunArguments,
    },
    /// Runs the daemon of the CNI plugin on a node until SIGTERM.
    #[cfg(feature = "cni")]
    CniDaemon(ClusterArguments),
    /// Checks, shows and documents the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Lists all handlers and shows which are enabled.
    Handlers(ListArguments),
    /// Lists all drivers and shows which are chosen.
    Drivers(ListArguments),
    /// Shows the state of a running controller and of the objects in its queues.
    Status(WithServer<StatusArguments>),
    /// Shows the way of an object through the chain of a running controller, why it does not get on, and what would help.
    Explain(WithServer<ExplainArguments>),
    /// Shows the watches, the queues, the rates and the slowest objects of a running controller, refreshed in the terminal.
    #[cfg(feature = "top")]
    Top(WithServer<TopArguments>),
    /// Shows the log level of a running controller, or changes it until the controller ends.
    LogLevel(WithServer<LogLevelArguments>),
    /// Checks the external systems with the credentials of the configuration, without a controller.
    Check {
        #[command(flatten)]
        cluster: ClusterArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Lists what a cluster that no longer exists left in external systems, and releases it with `--apply`.
    Cleanup(CleanupArguments),
    /// Removes the controller's finalizers from all objects with `--apply`, and lists what stays in external systems.
    Uninstall(UninstallArguments),
    /// Takes a cluster over from another controller.
    #[cfg(feature = "network")]
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Prints a completion script for a shell.
    #[cfg(feature = "completion")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Shows the version of the program and what it was built with.
    Version(OutputArguments),
}

/// Runs `command` and writes its result to `output`. `variables` are the environment variables.
pub(super) fn execute(
    command: Command,
    registry: Registry,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let variables: Vec<_> = variables.into_iter().collect();
    let load = |registry: &Registry, file: &ConfigFile| {
        let schema = FileSchema::assemble(registry)?;
        Configuration::load(&schema, choose_file(file.config.clone()).as_deref(), variables.iter().cloned())
    };
    let load_cluster = |registry: &Registry, ClusterArguments { file, kubeconfig }: &ClusterArguments| {
        let mut configuration = load(registry, file)?;
        configuration.override_kubeconfig(kubeconfig.clone());
        Ok::<_, ConfigurationError>(configuration)
    };
    match command {
        Command::Run { cluster, dry_run: arguments } => {
            let configuration = load_cluster(&registry, &cluster)?;
            if arguments.enabled {
                dry_run(&arguments, registry, &configuration, output)?;
            } else {
                run(registry, &configuration)?;
            }
        }
        #[cfg(feature = "cni")]
        Command::CniDaemon(ClusterArguments { file, kubeconfig }) => {
            let file = choose_file(file.config);
            let mut configuration = cni_daemon::load(&registry, file.as_deref(), variables)?;
            configuration.override_kubeconfig(kubeconfig);
            cni_daemon::run(registry, configuration)?;
        }
        Command::Config(command) => config(&command, registry, load, output)?,
        Command::Handlers(ListArguments { file, output: OutputArguments { format } }) => {
            handlers(&registry, &load(&registry, &file)?, format, output)?;
        }
        Command::Drivers(ListArguments { file, output: OutputArguments { format } }) => {
            drivers(&registry, &load(&registry, &file)?, format, output)?;
        }
        Command::Status(WithServer { arguments, server }) => {
            block_on(status(arguments, &admin_client(server, &registry, load)?, output))?;
        }
        Command::Explain(WithServer { arguments, server }) => {
            block_on(explain(arguments, &admin_client(server, &registry, load)?, output))?;
        }
        #[cfg(feature = "top")]
        Command::Top(WithServer { arguments, server }) => {
            block_on(top(arguments, &admin_client(server, &registry, load)?, output))?;
        }
        Command::LogLevel(WithServer { arguments, server }) => {
            block_on(log_level(arguments, &admin_client(server, &registry, load)?, output))?;
        }
        Command::Check { cluster, output: OutputArguments { format } } => {
            let configuration = load_cluster(&registry, &cluster)?;
            let check = |client| check_systems(registry, &configuration, client).map(Ok::<_, Infallible>);
            write_report(&with_client(&configuration, check)?, format, output)?;
        }
        Command::Cleanup(arguments) => {
            let configuration = load_cluster(&registry, &arguments.cluster)?;
            cleanup(&arguments, registry, &configuration, output)?;
        }
        Command::Uninstall(arguments) => {
            let configuration = load_cluster(&registry, &arguments.cluster)?;
            uninstall(&arguments, registry, &configuration, output)?;
        }
        #[cfg(feature = "network")]
        Command::Migrate(MigrateCommand::Kuryr(arguments)) => {
            let configuration = load_cluster(&registry, &arguments.cluster)?;
            migrate_kuryr(&arguments, registry, &configuration, output)?;
        }
        #[cfg(feature = "completion")]
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "staffetta", &mut script);
            output.write_all(&script)?;
        }
        Command::Version(OutputArguments { format }) => {
            format.write(&VERSION, || VERSION.to_string(), output)?;
        }
    }
    Ok(())
}

/// Returns a client of the admin server. `load` reads the configuration; it is called only if the command line has no address.
fn admin_client(
    server: AdminServer,
    registry: &Registry,
    load: impl FnOnce(&Registry, &ConfigFile) -> Result<Configuration, ConfigurationError>,
) -> Result<AdminClient, CommandError> {
    let address = match server.admin {
        Some(given) => address::parse(&given)?,
        None => address::of_listener(load(registry, &server.file)?.admin.listen)?,
    };
    Ok(AdminClient::Address(address))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use staffetta_handler::SetupError;

    use super::*;
    use crate::base::config;

    trait Lamp: Send + Sync {}
    struct Candle;
    impl Lamp for Candle {}

    fn registry() -> Registry {
        let mut registry = Registry::default();
        config::register(&mut registry);
        for (name, about) in [("vif", "Plugs pods in."), ("night-light", "Switches lamps.")] {
            registry.handler(name, about, |_| {
                Err(SetupError::Invalid("a handler that is only named".to_owned()))
            });
        }
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "What lights the way.");
        registry.driver::<dyn Lamp>("candle", "Wax and a wick.", |_| Ok(Arc::new(Candle)));
        registry.driver::<dyn Lamp>("torch", "A stick.", |_| Ok(Arc::new(Candle)));
        registry
    }

    /// Returns the output of the command line `line`, with an empty configuration file if the command reads one.
    fn output_of(line: &str, variables: &[(&str, &str)]) -> Result<String, CommandError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let takes_file = !line.contains("completion");
        let file = takes_file.then(|| [OsString::from("--config"), file.path().into()]);
        let words = line.split(' ').map(OsString::from).chain(file.into_iter().flatten());
        let command = CommandLine::try_parse_from(words).unwrap().command;
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let mut output = Vec::new();
        execute(command, registry(), variables, &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn handlers_and_drivers_are_listed_with_the_choice_of_the_configuration() {
        let handlers = output_of("staffetta handlers", &[]).unwrap();
        let lines = [
            "HANDLER      ENABLED  ABOUT",
            "night-light  no       Switches lamps.",
            "vif          yes      Plugs pods in.",
        ];
        assert_eq!(handlers.lines().collect::<Vec<_>>(), lines);

        let drivers =
            output_of("staffetta drivers", &[("STAFFETTA_KUBERNETES__LAMP_DRIVER", "torch")]).unwrap();
        let lines = [
            "OPTION       DRIVER  CHOSEN  ABOUT",
            "lamp_driver  candle  no      Wax and a wick.",
            "lamp_driver  torch   yes     A stick.",
        ];
        assert_eq!(drivers.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn handlers_and_drivers_are_documents_for_programs_too() {
        let document =
            |line: &str| -> Value { serde_json::from_str(&output_of(line, &[]).unwrap()).unwrap() };
        let expected = json!({ "handlers": [
            { "handler": "night-light", "enabled": false, "about": "Switches lamps." },
            { "handler": "vif", "enabled": true, "about": "Plugs pods in." },
        ] });
        assert_eq!(document("staffetta handlers -o json"), expected);
        let expected = json!({ "drivers": [
            { "option": "lamp_driver", "driver": "candle", "chosen": true, "about": "Wax and a wick." },
            { "option": "lamp_driver", "driver": "torch", "chosen": false, "about": "A stick." },
        ] });
        assert_eq!(document("staffetta drivers -o json"), expected);
        assert!(output_of("staffetta handlers -o yaml", &[]).unwrap().starts_with("handlers:\n"));
    }

    #[test]
    fn the_completion_script_of_every_shell_contains_the_commands() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = output_of(&format!("staffetta completion {shell}"), &[]).unwrap();
            assert!(script.contains("drivers") && script.contains("kubeconfig"), "{shell}");
        }
    }

    #[test]
    fn a_wrong_configuration_is_bad_usage_in_every_command_that_reads_it() {
        for command in ["run", "config check", "config show", "handlers", "drivers"] {
            let error =
                output_of(&format!("staffetta {command}"), &[("STAFFETTA_LOG__LEVEL", "loud")]).unwrap_err();
            assert_eq!(error.exit_code(), std::process::ExitCode::from(2), "{command}");
            assert!(error.message().contains("environment STAFFETTA_LOG__LEVEL: log.level"), "{command}");
        }
    }
}
