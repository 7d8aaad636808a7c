//! `staffetta migrate`: takes a cluster over from another controller.

use std::io::Write;

use clap::{Args, Subcommand};
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ClusterArguments, OutputArguments};
use super::table::TextTable;
use crate::base::config::Configuration;
use crate::control::run::with_client;
use crate::operate::migrate::{Migration, MigrationOptions, migrate};

#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Shows the steps that take a cluster over from Kuryr-Kubernetes, and executes them with `--apply`.
    Kuryr(MigrateArguments),
}

#[derive(Debug, Args)]
pub(super) struct MigrateArguments {
    #[command(flatten)]
    options: MigrationOptions,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Plans or executes the migration from Kuryr, and writes the table of its objects. Fails if an object is refused, or a step failed.
pub(super) fn migrate_kuryr(
    arguments: &MigrateArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let options = arguments.options;
    let migration = with_client(configuration, |client| migrate(registry, configuration, client, options))?;
    arguments.output.format.write(&migration, || text(&migration), output)?;
    let complete = migration.objects.iter().all(|object| object.is_ok);
    CommandError::unless(complete, "not everything can be taken over; the table shows the reasons")
}

/// Returns the table of the objects and their results, and a note about Kuryr's controllers that still run.
fn text(migration: &Migration) -> String {
    let table = TextTable::of(["kind", "namespace", "name", "result"], &migration.objects);
    let running = match migration.running_kuryr.join(", ") {
        running if running.is_empty() => String::new(),
        running => format!("\nKuryr's controller runs: {running}; stop it before --apply\n"),
    };
    format!("{table}{running}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operate::cleanup::ObjectResult;

    #[test]
    fn the_document_for_programs_contains_all_that_the_text_says() {
        let object = ObjectResult {
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            result: "refused: it has no port".to_owned(),
            is_ok: false,
        };
        let migration =
            Migration { objects: vec![object], running_kuryr: vec!["pod kube-system/kuryr".to_owned()] };
        let expected = json!({
            "objects": [{ "kind": "Pod", "namespace": "shop", "name": "web", "result": "refused: it has no port",
                "ok": false }],
            "runningKuryr": ["pod kube-system/kuryr"],
        });
        assert_eq!(serde_json::to_value(&migration).unwrap(), expected);
        assert!(
            text(&migration)
                .ends_with("\nKuryr's controller runs: pod kube-system/kuryr; stop it before --apply\n")
        );
    }
}
