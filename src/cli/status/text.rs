//! Text for the terminal.

/// Returns the first `width` characters of a line. If the line is longer, the last of them is an ellipsis.
pub(super) fn truncate(line: &str, width: usize) -> String {
    match line.char_indices().nth(width) {
        None => line.to_owned(),
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table::single_line;

    #[test]
    fn foreign_text_is_shown_on_one_line_without_control_characters() {
        assert_eq!(single_line("no\naddress\x1b[31m left\u{9b}"), "no address [31m left ");
    }

    #[test]
    fn a_line_that_is_too_long_ends_with_an_ellipsis() {
        assert_eq!((truncate("übermaß", 7), truncate("übermaß", 6)), ("übermaß".into(), "überm…".into()));
    }
}
