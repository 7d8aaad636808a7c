//! Quotes messages of a device.

/// The maximum length of a quotation, in characters.
pub(crate) const QUOTED: usize = 300;

/// Shortens a message of the device to one printable line.
pub(crate) fn quoted(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(QUOTED).collect()
}
