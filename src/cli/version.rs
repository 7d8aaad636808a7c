//! `staffetta version`: shows the version of the program.

use std::ffi::OsString;
use std::io::Write;

use super::CommandError;
use super::arguments::OutputFormat;
use crate::version::VERSION;

/// Writes the version to `output`.
pub(super) fn version(format: OutputFormat, output: &mut impl Write) -> Result<(), CommandError> {
    Ok(format.write(&VERSION, || VERSION.to_string(), output)?)
}

/// Replaces the option `--version` by the command `version` if more options follow: clap would print the version and ignore them.
pub(super) fn with_version_command(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.into_iter().collect();
    if words.len() > 2 && (words[1] == "--version" || words[1] == "-V") {
        words[1] = "version".into();
    }
    words
}
