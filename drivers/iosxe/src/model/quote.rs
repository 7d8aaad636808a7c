//! Quotes messages of a device.

/// The maximum length of a quotation, in characters.
pub(crate) const QUOTED: usize = 300;

/// The beginning of what a device says, without what would spoil a line.
pub(crate) fn quoted(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(QUOTED).collect()
}
