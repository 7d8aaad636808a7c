//! `staffetta uninstall`: removes the controller's finalizers.

use std::io::Write;

use clap::Args;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::{ClusterArguments, OutputArguments};
use super::cleanup::leftovers_table;
use super::table::TextTable;
use crate::base::config::Configuration;
use crate::control::run::with_client;
use crate::operate::uninstall::{self, UninstallOptions, Uninstalled};

#[derive(Debug, Args)]
pub(super) struct UninstallArguments {
    #[command(flatten)]
    options: UninstallOptions,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Runs `staffetta uninstall`: lists the finalizers and the virtual nodes of the controller or, with `--apply`, removes them. Writes the
/// result, and fails if a finalizer or a node could not be removed.
pub(super) fn uninstall(
    arguments: &UninstallArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let done = with_client(configuration, |client| {
        uninstall::uninstall(registry, configuration, client, &arguments.options)
    })?;
    arguments.output.format.write(&done, || text(&done), output)?;
    let complete = done.objects.iter().all(|object| object.is_ok);
    CommandError::unless(complete, "not every object was freed; the table shows the errors")
}

/// Returns the table of the objects and their results, and the list of what stays in external systems.
fn text(done: &Uninstalled) -> String {
    let table = TextTable::of(["kind", "namespace", "name", "result"], &done.objects);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operate::cleanup::{Leftover, ObjectResult};

    #[test]
    fn the_document_for_programs_contains_all_that_the_text_says() {
        let text = |text: &str| text.to_owned();
        let object = |result: &str| ObjectResult {
            kind: text("Pod"),
            namespace: text("shop"),
            name: text("web"),
            result: text(result),
            is_ok: true,
        };
        let done = Uninstalled {
            objects: vec![object("freed")],
            outside: vec![Leftover { handler: text("vif"), uid: text("u1"), owner: object("found") }],
            pooled: 2,
            unknown: vec![text("no route")],
        };
        let expected = json!({
            "objects": [{ "kind": "Pod", "namespace": "shop", "name": "web", "result": "freed", "ok": true }],
            "outside": [{ "handler": "vif", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u1",
                "result": "found", "ok": true }],
            "pooled": 2,
            "unknown": ["no route"],
        });
        assert_eq!(serde_json::to_value(&done).unwrap(), expected);
    }
}
