//! `staffetta cleanup`: releases what another cluster left in external systems.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ConfigFile, Output};
use super::table::TextTable;
use crate::cleanup::Leftover;
use crate::config::Configuration;
use crate::run;

#[derive(Debug, Args)]
pub(super) struct CleanupArguments {
    /// The cluster id of the other cluster, as its resources carry it in their marks.
    #[arg(long, value_name = "ID")]
    cluster_id: String,
    /// Release the resources. Without it, their owners are only listed.
    #[arg(long)]
    apply: bool,
    /// The kubeconfig file of an existing cluster. Overrides `kubernetes.kubeconfig`.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(super) file: ConfigFile,
    #[command(flatten)]
    output: Output,
}

/// Lists or releases the external resources of another cluster, and writes the table of their owners.
pub(super) fn cleanup(
    arguments: &CleanupArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let CleanupArguments { cluster_id, apply, kubeconfig, .. } = arguments;
    let leftovers = run::cleanup(registry, configuration, kubeconfig.as_deref(), cluster_id, *apply)?;
    let document = json!({ "owners": leftovers });
    arguments.output.format.write(&document, || leftovers_table(&leftovers).to_string(), output)?;
    if leftovers.iter().all(Leftover::is_ok) { Ok(()) } else { Err(CommandError::NotReleased) }
}

/// Returns the table of the owners of resources in external systems.
pub(super) fn leftovers_table(leftovers: &[Leftover]) -> TextTable<5> {
    let mut table = TextTable::new(["HANDLER", "KIND", "NAMESPACE", "NAME", "RESOURCES"]);
    for leftover in leftovers {
        let owner = leftover.owner.object_ref();
        let namespace = owner.namespace.unwrap_or_default();
        table.row([&leftover.handler, &owner.kind, namespace, owner.name, &leftover.outcome()]);
    }
    table
}
