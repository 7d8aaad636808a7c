//! `staffetta migrate`: takes a cluster over from another controller.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::ConfigFile;
use super::table::TextTable;
use crate::config::Configuration;
use crate::migrate::{Migration, MigrationOptions};
use crate::run;

#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Shows the steps that take a cluster over from Kuryr-Kubernetes, and executes them with `--apply`.
    Kuryr(MigrateArguments),
}

#[derive(Debug, Args)]
pub(super) struct MigrateArguments {
    /// Take the cluster over. Without it, the steps are only shown.
    #[arg(long)]
    apply: bool,
    /// Also delete the ports that Kuryr's pools kept ready on the nodes of this cluster, and that no pod uses.
    #[arg(long)]
    delete_idle_ports: bool,
    /// The kubeconfig file. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

/// Shows or executes the steps, and writes their table.
pub(super) fn migrate_kuryr(
    arguments: &MigrateArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let &MigrateArguments { apply, delete_idle_ports, ref kubeconfig, .. } = arguments;
    let options = MigrationOptions { apply, delete_idle_ports };
    let migration = run::migrate(registry, configuration, kubeconfig.as_deref(), options)?;
    write!(output, "{}", table(&migration))?;
    if !migration.running_kuryr.is_empty() {
        let running = migration.running_kuryr.join(", ");
        writeln!(output, "\nKuryr's controller runs: {running}; stop it before --apply")?;
    }
    if migration.objects.iter().all(|object| object.is_ok) { Ok(()) } else { Err(CommandError::NotMigrated) }
}

fn table(migration: &Migration) -> TextTable<4> {
    let mut table = TextTable::new(["KIND", "NAMESPACE", "NAME", "RESULT"]);
    for object in &migration.objects {
        table.row([object.kind, &object.namespace, &object.name, &object.result]);
    }
    table
}
