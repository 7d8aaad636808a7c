//! Prepares messages of a device for errors and logs.

/// The maximum length of a quoted message, in characters.
pub(crate) const QUOTED: usize = 300;

/// Returns the text without control characters, cut to [`QUOTED`] characters.
pub(crate) fn quoted(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(QUOTED).collect()
}
