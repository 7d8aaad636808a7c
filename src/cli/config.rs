//! `staffetta config`, `handlers` and `drivers`: check and show the configuration.

use std::io::{self, Write};

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ConfigFile, OutputFormat};
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

/// A handler in the list of all handlers.
#[derive(Serialize)]
struct ListedHandler<'a> {
    handler: &'a str,
    enabled: bool,
    about: &'a str,
}

/// Writes the list of all handlers, with a mark for those that are enabled.
pub(super) fn handlers(
    registry: &Registry,
    configuration: &Configuration,
    format: OutputFormat,
    output: &mut impl Write,
) -> io::Result<()> {
    let is_enabled =
        |name: &str| configuration.kubernetes.enabled_handlers.iter().any(|enabled| enabled == name);
    let handlers: Vec<_> = registry
        .handlers()
        .map(|(name, entry)| ListedHandler { handler: name, enabled: is_enabled(name), about: &entry.about })
        .collect();
    let text = || {
        let mut table = TextTable::new(["HANDLER", "ENABLED", "ABOUT"]);
        for ListedHandler { handler, enabled, about } in &handlers {
            table.row([handler, yes_or_no(*enabled), about]);
        }
        table.to_string()
    };
    format.write(&json!({ "handlers": handlers }), text, output)
}

/// A driver in the list of all drivers.
#[derive(Serialize)]
struct ListedDriver<'a> {
    option: String,
    driver: &'a str,
    chosen: bool,
    about: &'a str,
}

/// Writes the list of all drivers, with a mark for those that are chosen.
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
        drivers.extend(interface.drivers.iter().map(|(name, entry)| ListedDriver {
            option: option.clone(),
            driver: name,
            chosen: !interface.has_option || chosen == name.as_str(),
            about: &entry.about,
        }));
    }
    let text = || {
        let mut table = TextTable::new(["OPTION", "DRIVER", "CHOSEN", "ABOUT"]);
        for ListedDriver { option, driver, chosen, about } in &drivers {
            table.row([option, driver, yes_or_no(*chosen), about]);
        }
        table.to_string()
    };
    format.write(&json!({ "drivers": drivers }), text, output)
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
