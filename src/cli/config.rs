//! `staffetta config`, `handlers` and `drivers`: check and show the configuration.

use std::io::Write;

use clap::Subcommand;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::ConfigFile;
use super::table::TextTable;
use crate::config::{Configuration, ConfigurationError, FileSchema};
use crate::run::check;

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

/// Runs the command. `load` reads the configuration.
pub(super) fn config(
    command: &ConfigCommand,
    registry: Registry,
    schema: &FileSchema,
    load: impl FnOnce(&ConfigFile) -> Result<Configuration, ConfigurationError>,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check(file) => {
            check(registry, &load(file)?).map_err(CommandError::InvalidSetup)?;
            writeln!(output, "ok")?;
        }
        ConfigCommand::Show(file) => write!(output, "{}", load(file)?.show(schema))?,
        ConfigCommand::Sample => write!(output, "{}", schema.sample())?,
        ConfigCommand::Schema => writeln!(output, "{:#}", schema.to_json())?,
    }
    Ok(())
}

/// Returns the table of all handlers, with a mark for those that are enabled.
pub(super) fn handlers(registry: &Registry, configuration: &Configuration) -> TextTable<3> {
    let mut table = TextTable::new(["HANDLER", "ENABLED", "ABOUT"]);
    for (name, entry) in registry.handlers() {
        let enabled = configuration.kubernetes.enabled_handlers.iter().any(|enabled| enabled == name);
        table.row([name, yes_or_no(enabled), &entry.about]);
    }
    table
}

/// Returns the table of all drivers, with a mark for those that are chosen.
pub(super) fn drivers(registry: &Registry, configuration: &Configuration) -> TextTable<4> {
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

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
