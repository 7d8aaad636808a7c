//! `staffetta run --dry-run`: shows the changes that the controller would make.

use std::io::Write;

use clap::Args;
use staffetta_handler::Registry;

use super::CommandError;
use super::arguments::OutputFormat;
use crate::base::config::{Configuration, TimeSpan};
use crate::control::run::with_client;
use crate::operate::dry_run;

#[derive(Debug, Args)]
pub(super) struct DryRunArguments {
    /// Print the planned changes and exit, without a write to Kubernetes or to an external system. The exit code is 0 if all
    /// changes could be planned, else 1.
    #[arg(id = "dry_run", long = "dry-run")]
    pub(super) enabled: bool,
    /// The format of the plan.
    #[arg(short, long, value_name = "FORMAT", value_parser = OutputFormat::without_wide(), default_value = "table",
        requires = "dry_run")]
    output: OutputFormat,
    /// The time limit of the dry run.
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "dry_run")]
    timeout: TimeSpan,
}

/// Plans the changes that the controller would make, and writes the plan. Then fails if the plan is incomplete or a part of it would fail.
pub(super) fn dry_run(
    arguments: &DryRunArguments,
    registry: Registry,
    configuration: &Configuration,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let limit = arguments.timeout.into();
    let plan = with_client(configuration, |client| dry_run::dry_run(registry, configuration, client, limit))?;
    arguments.output.write(&plan, || plan.to_string(), output)?;
    CommandError::unless(
        plan.is_complete(),
        "the plan is incomplete, or parts of it would fail; see the plan for details",
    )
}
