//! Runs the commands of the command line.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::CommandFactory;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{
    AdminServer, CleanupArguments, Command, CommandLine, ConfigCommand, ConfigFile, MigrateArguments,
    MigrateCommand, TextFormat, UninstallArguments,
};
use super::explain::explain;
use super::log_level::log_level;
use super::request::{AdminAddress, AdminClient, block_on};
use super::status::status;
use super::table::TextTable;
use super::version::version;
use crate::cleanup::Leftover;
use crate::cni_daemon;
use crate::config::{Configuration, ConfigurationError, FileSchema, choose_file};
use crate::dry_run::DryRun;
use crate::migrate::{Migration, MigrationOptions};
use crate::run::{self, check, run};
use crate::uninstall::{UninstallOptions, Uninstalled};

/// Runs `command` and writes its result to `output`. `variables` are the environment variables.
pub(super) fn execute(
    command: Command,
    registry: Registry,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let schema = FileSchema::assemble(&registry).map_err(ConfigurationError::from)?;
    let load =
        |file: ConfigFile| Configuration::load(&schema, choose_file(file.config).as_deref(), variables);
    match command {
        Command::Run { file, kubeconfig, dry_run } => {
            let configuration = load(file)?;
            if dry_run.enabled {
                let limit = dry_run.timeout.into();
                let planned = run::dry_run(registry, &configuration, kubeconfig.as_deref(), limit)?;
                plan(&planned, dry_run.output, output)?;
            } else {
                run(registry, &configuration, kubeconfig.as_deref())?;
            }
        }
        Command::CniDaemon { file, kubeconfig } => {
            cni_daemon::run(registry, load(file)?, kubeconfig.as_deref())?;
        }
        Command::Config(ConfigCommand::Check(file)) => {
            let configuration = load(file)?;
            check(registry, &configuration).map_err(CommandError::InvalidSetup)?;
            writeln!(output, "ok")?;
        }
        Command::Config(ConfigCommand::Show(file)) => {
            let configuration = load(file)?;
            write!(output, "{}", configuration.show(&schema))?;
        }
        Command::Config(ConfigCommand::Sample) => write!(output, "{}", schema.sample())?,
        Command::Config(ConfigCommand::Schema) => writeln!(output, "{:#}", schema.to_json())?,
        Command::Handlers(file) => write!(output, "{}", handlers(&registry, &load(file)?))?,
        Command::Drivers(file) => write!(output, "{}", drivers(&registry, &load(file)?))?,
        Command::Status { arguments, server } => {
            let client = admin_client(server, load)?;
            block_on(status(arguments, &client, None, output))?;
        }
        Command::Explain { arguments, server } => {
            let client = admin_client(server, load)?;
            block_on(explain(arguments, &client, None, output))?;
        }
        Command::LogLevel { arguments, server } => {
            let client = admin_client(server, load)?;
            block_on(log_level(arguments, &client, output))?;
        }
        Command::Cleanup(CleanupArguments { cluster_id, apply, kubeconfig, file }) => {
            let configuration = load(file)?;
            let leftovers =
                run::cleanup(registry, &configuration, kubeconfig.as_deref(), &cluster_id, apply)?;
            write!(output, "{}", leftovers_table(&leftovers))?;
            if !leftovers.iter().all(Leftover::is_ok) {
                return Err(CommandError::NotReleased);
            }
        }
        Command::Uninstall(UninstallArguments { apply, stop, timeout, kubeconfig, file }) => {
            let options = UninstallOptions { apply, stop, timeout: timeout.into() };
            let done = run::uninstall(registry, &load(file)?, kubeconfig.as_deref(), &options)?;
            write!(output, "{}", uninstalled(&done))?;
            if !done.objects.iter().all(|object| object.is_ok) {
                return Err(CommandError::NotFreed);
            }
        }
        Command::Migrate(MigrateCommand::Kuryr(arguments)) => {
            let MigrateArguments { apply, delete_idle_ports, kubeconfig, file } = arguments;
            let (configuration, options) = (load(file)?, MigrationOptions { apply, delete_idle_ports });
            let migration = run::migrate(registry, &configuration, kubeconfig.as_deref(), options)?;
            write!(output, "{}", migration_table(&migration))?;
            if !migration.running_kuryr.is_empty() {
                writeln!(
                    output,
                    "\nKuryr's controller runs: {}; stop it before --apply",
                    migration.running_kuryr.join(", ")
                )?;
            }
            if !migration.objects.iter().all(|object| object.is_ok) {
                return Err(CommandError::NotMigrated);
            }
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "staffetta", &mut script);
            output.write_all(&script)?;
        }
        Command::Version(arguments) => version(&arguments, output)?,
    }
    Ok(())
}

/// Returns a client of the admin server. `load` reads the configuration; it is called only if the command line has no address.
fn admin_client(
    server: AdminServer,
    load: impl FnOnce(ConfigFile) -> Result<Configuration, ConfigurationError>,
) -> Result<AdminClient, CommandError> {
    let address = match server.admin {
        Some(address) => address.parse()?,
        None => AdminAddress::of_listener(load(server.file)?.admin.listen)?,
    };
    Ok(AdminClient::Address(address))
}

/// Writes the plan of a dry run, even if it is incomplete. Returns [`CommandError::Incomplete`] in that case.
fn plan(planned: &DryRun, form: TextFormat, output: &mut impl Write) -> Result<(), CommandError> {
    match form {
        TextFormat::Text => write!(output, "{planned}")?,
        TextFormat::Json => {
            let text = serde_json::to_string_pretty(planned).map_err(io::Error::from)?;
            writeln!(output, "{text}")?;
        }
    }
    if planned.is_complete() { Ok(()) } else { Err(CommandError::Incomplete) }
}

/// Returns the table of all handlers, with a mark for those that are enabled.
fn handlers(registry: &Registry, configuration: &Configuration) -> TextTable<3> {
    let mut table = TextTable::new(["HANDLER", "ENABLED", "ABOUT"]);
    for (name, entry) in registry.handlers() {
        let enabled = configuration.kubernetes.enabled_handlers.iter().any(|enabled| enabled == name);
        table.row([name, yes_or_no(enabled), &entry.about]);
    }
    table
}

/// Returns the table of all drivers, with a mark for those that are chosen.
fn drivers(registry: &Registry, configuration: &Configuration) -> TextTable<4> {
    let mut table = TextTable::new(["OPTION", "DRIVER", "CHOSEN", "ABOUT"]);
    for interface in registry.driver_traits() {
        let option = if interface.has_option { interface.option() } else { interface.alias.clone() };
        let chosen = &configuration.value["kubernetes"][&option];
        for (name, entry) in &interface.drivers {
            let chosen = !interface.has_option || chosen == name.as_str();
            table.row([&option, name, yes_or_no(chosen), &entry.about]);
        }
    }
    table
}

fn leftovers_table(leftovers: &[Leftover]) -> TextTable<5> {
    let mut table = TextTable::new(["HANDLER", "KIND", "NAMESPACE", "NAME", "RESOURCES"]);
    for leftover in leftovers {
        let owner = leftover.owner.object_ref();
        let namespace = owner.namespace.unwrap_or_default();
        table.row([&leftover.handler, &owner.kind, namespace, owner.name, &leftover.outcome()]);
    }
    table
}

/// The text of the result of `uninstall`.
fn uninstalled(done: &Uninstalled) -> String {
    let mut table = TextTable::new(["KIND", "NAMESPACE", "NAME", "RESULT"]);
    for object in &done.objects {
        table.row([&object.kind, &object.namespace, &object.name, &object.result]);
    }
    let outside = match done.outside.as_slice() {
        [] if done.pooled > 0 => String::new(),
        [] => "Nothing is known that stays in external systems.\n".to_owned(),
        owners => format!(
            "The resources of these objects stay in external systems, with the mark of this cluster:\n{}",
            leftovers_table(owners)
        ),
    };
    let pooled = match done.pooled {
        0 => String::new(),
        count => format!(
            "The pool keeps {count} VIFs ready, which stay too. `staffetta cleanup`, run from another cluster, releases them.\n"
        ),
    };
    let unknown = done.unknown.iter().map(|reason| format!("What else stays is not known: {reason}\n"));
    format!("{table}\n{outside}{pooled}{}", unknown.collect::<String>())
}

fn migration_table(migration: &Migration) -> TextTable<4> {
    let mut table = TextTable::new(["KIND", "NAMESPACE", "NAME", "RESULT"]);
    for object in &migration.objects {
        table.row([object.kind, &object.namespace, &object.name, &object.result]);
    }
    table
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use staffetta_handler::SetupError;

    use super::*;
    use crate::config;

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
