//! `staffetta version`: shows the version of the program.

use std::io::{self, Write};

use super::CommandError;
use super::arguments::{TextFormat, VersionArguments};
use crate::version::VERSION;

/// Writes the version to `output`.
pub(super) fn version(arguments: &VersionArguments, output: &mut impl Write) -> Result<(), CommandError> {
    match arguments.output {
        TextFormat::Text => write!(output, "{VERSION}")?,
        TextFormat::Json => {
            writeln!(output, "{}", serde_json::to_string_pretty(&VERSION).map_err(io::Error::from)?)?;
        }
    }
    Ok(())
}
