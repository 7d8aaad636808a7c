//! `staffetta cleanup`: releases what another cluster left in external systems.

use std::io::Write;

use clap::Args;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ClusterArguments, OutputArguments};
use super::table::TextTable;
use crate::base::config::Configuration;
use crate::control::run::with_client;
use crate::operate::cleanup::{self, CleanedUp, Leftover};

#[derive(Debug, Args)]
pub(super) struct CleanupArguments {
    /// The cluster id of the other cluster, as its resources carry it in their marks. `--kubeconfig` is that of an existing cluster.
    #[arg(long, value_name = "ID")]
    cluster_id: String,
    /// Release the resources. Without it, their owners are only listed.
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Lists or releases the external resources of another cluster, and writes a table of the Kubernetes objects that own them. Fails if
/// something could not be listed or released.
pub(super) fn cleanup(
    arguments: &CleanupArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let CleanupArguments { cluster_id, apply, .. } = arguments;
    let done = with_client(configuration, |client| {
        cleanup::cleanup(registry, configuration, client, cluster_id, *apply)
    })?;
    arguments.output.format.write(&done, || text(&done, *apply), output)?;
    CommandError::unless(
        is_complete(&done),
        "not everything was listed or released; the output shows the errors",
    )
}

/// Returns `true` if all resources are listed and, with `--apply`, released.
fn is_complete(done: &CleanedUp) -> bool {
    done.unknown.is_empty() && done.owners.iter().all(|leftover| leftover.owner.is_ok)
}

/// Returns the table of the objects that own the resources, the number of VIFs that the pool kept ready, and the errors of handlers.
fn text(done: &CleanedUp, apply: bool) -> String {
    let pooled = match done.pooled {
        0 => String::new(),
        count if apply => format!("VIFs that the pool kept ready, and that are deleted: {count}\n"),
        count => format!("VIFs that the pool kept ready: {count}\n"),
    };
    let unknown = done.unknown.iter().map(|reason| format!("What else remains is not known: {reason}\n"));
    format!("{}{pooled}{}", leftovers_table(&done.owners), unknown.collect::<String>())
}

/// Returns a table of the Kubernetes objects that own external resources, each with the result of the release.
pub(super) fn leftovers_table(leftovers: &[Leftover]) -> TextTable<5> {
    TextTable::of(["handler", "kind", "namespace", "name", "result"], &leftovers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_cannot_list_its_resources_makes_the_command_fail() {
        assert!(is_complete(&CleanedUp { pooled: 3, ..CleanedUp::default() }));
        let done = CleanedUp { unknown: vec!["no rights".to_owned()], ..CleanedUp::default() };
        assert!(!is_complete(&done));
        assert!(text(&done, true).ends_with("\nWhat else remains is not known: no rights\n"));
    }
}
