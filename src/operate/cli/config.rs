//! `staffetta config`, `handlers` and `drivers`: check and show the configuration.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::json;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ConfigFile, OutputArguments, OutputFormat};
use super::table::TextTable;
use crate::base::config::{Configuration, ConfigurationError, FileSchema};
use crate::control::run::check;

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

/// Runs a command of `staffetta config`, and writes its result to `output`. `load` reads the configuration.
pub(super) fn config(
    command: &ConfigCommand,
    registry: Registry,
    load: impl FnOnce(&Registry, &ConfigFile) -> Result<Configuration, ConfigurationError>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let schema = || FileSchema::assemble(&registry);
    match command {
        ConfigCommand::Check(file) => {
            let configuration = load(&registry, file)?;
            check(registry, &configuration).map_err(CommandError::InvalidSetup)?;
            writeln!(output, "ok")?;
        }
        ConfigCommand::Show(file) => write!(output, "{}", load(&registry, file)?.show(&schema()?))?,
        ConfigCommand::Sample => write!(output, "{}", schema()?.sample())?,
        ConfigCommand::Schema => writeln!(output, "{:#}", schema()?.to_json())?,
    }
    Ok(())
}

/// The arguments of a command that lists what the program knows, and what the configuration chooses of it.
#[derive(Debug, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    pub(super) file: ConfigFile,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Writes the list of all handlers, with a mark for those that are enabled.
pub(super) fn handlers(
    registry: &Registry,
    configuration: &Configuration,
    format: OutputFormat,
    output: &mut impl Write,
) -> io::Result<()> {
    let enabled = &configuration.kubernetes.enabled_handlers;
    let handlers = registry.handlers().map(|(name, entry)| {
        let enabled = enabled.iter().any(|enabled| enabled == name);
        json!({ "handler": name, "enabled": enabled, "about": entry.about })
    });
    let handlers: Vec<_> = handlers.collect();
    let text = || TextTable::of(["handler", "enabled", "about"], &handlers).to_string();
    format.write(&json!({ "handlers": handlers }), text, output)
}

/// Writes the list of all drivers. Those that an option `<trait>_driver` chooses are marked, and so are all that have no such option.
pub(super) fn drivers(
    registry: &Registry,
    configuration: &Configuration,
    format: OutputFormat,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut drivers = Vec::new();
    for interface in registry.driver_traits() {
        let option = if interface.has_option { interface.option() } else { interface.alias.clone() };
        let chosen = &configuration.value["kubernetes"][&option];
        drivers.extend(interface.drivers.iter().map(|(name, entry)| {
            let chosen = !interface.has_option || chosen == name.as_str();
            json!({ "option": option, "driver": name, "chosen": chosen, "about": entry.about })
        }));
    }
    let text = || TextTable::of(["option", "driver", "chosen", "about"], &drivers).to_string();
    format.write(&json!({ "drivers": drivers }), text, output)
}
