//! Lines of text for the terminal, with colours where the output goes to one.

use std::env;
use std::io::{self, IsTerminal};

use crate::observe::state::ObjectSummary;

/// The colour of a state in the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// The object fails or is stuck.
    Red,
    /// The object waits.
    Yellow,
    /// Nothing is wrong.
    Green,
}

impl Colour {
    /// Returns the colour of an object that is not handled yet: red if it fails or is stuck, otherwise yellow.
    pub(super) fn of(object: &ObjectSummary) -> Self {
        if object.is_failed_or_stuck() { Self::Red } else { Self::Yellow }
    }
}

/// The width and the use of colours with which lines are written to the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TerminalStyle {
    /// The width in characters to which lines are truncated; `None` to truncate none.
    pub(super) width: Option<usize>,
    /// `true` to write colours.
    pub(super) colours: bool,
}

impl TerminalStyle {
    /// Returns the style for standard output. Only a terminal has a width, and colours unless `NO_COLOR` is set or `TERM` is `dumb`.
    pub(super) fn of_stdout() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let colours = !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { width: Some(columns).filter(|columns| *columns > 0), colours }
    }

    /// Returns the same style, but without a width, so that no line is truncated.
    pub(super) fn untruncated(self) -> Self {
        Self { width: None, ..self }
    }

    /// Returns `text` with the escape sequences of a colour; without them if colours are off.
    fn paint(self, colour: Option<Colour>, text: &str) -> String {
        let code = match colour.filter(|_| self.colours) {
            None => return text.to_owned(),
            Some(Colour::Red) => 31,
            Some(Colour::Yellow) => 33,
            Some(Colour::Green) => 32,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Returns `lines` as text, each truncated to the width.
    pub(super) fn show(self, lines: Vec<StyledLine>) -> String {
        let width = self.width.unwrap_or(usize::MAX);
        let line = |line: StyledLine| {
            let parts = line.truncated(width).0.into_iter();
            parts.map(|(text, colour)| self.paint(colour, &text)).collect::<String>() + "\n"
        };
        lines.into_iter().map(line).collect()
    }
}

/// A line for the terminal, as parts of text with their colours; a part with `None` has the default colour of the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StyledLine(pub(super) Vec<(String, Option<Colour>)>);

impl StyledLine {
    /// Returns a line without colours. Line breaks and control characters are replaced.
    pub(super) fn plain(text: &str) -> Self {
        Self::default().then(text, None)
    }

    /// Appends `text`. Line breaks and control characters are replaced.
    pub(super) fn then(mut self, text: &str, colour: Option<Colour>) -> Self {
        self.0.push((single_line(text), colour));
        self
    }

    /// Returns the first `width` characters of the line. If the line is longer, the last of them is an ellipsis.
    pub(super) fn truncated(self, width: usize) -> Self {
        let length: usize = self.0.iter().map(|(text, _)| text.chars().count()).sum();
        if length <= width {
            return self;
        }
        let mut room = width.saturating_sub(1);
        let mut parts = Vec::new();
        for (text, colour) in self.0 {
            let text: String = text.chars().take(room).collect();
            room -= text.chars().count();
            parts.push((text, colour));
        }
        parts.push(("…".repeat(width.min(1)), None));
        Self(parts)
    }
}

/// Replaces line breaks and control characters by spaces, so that text from other systems cannot control the terminal.
pub(super) fn single_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_shown_on_one_line_without_control_characters() {
        assert_eq!(single_line("no\naddress\x1b[31m left\u{9b}"), "no address [31m left ");
    }

    #[test]
    fn a_line_that_is_too_long_ends_with_an_ellipsis() {
        let line = || StyledLine::plain("über").then("maß", Some(Colour::Red));
        assert_eq!(TerminalStyle::default().show(vec![line(), line()]), "übermaß\nübermaß\n");
        let shown = [7, 6, 3, 1, 0]
            .map(|width| TerminalStyle { width: Some(width), colours: false }.show(vec![line()]));
        assert_eq!(shown, ["übermaß\n", "überm…\n", "üb…\n", "…\n", "\n"]);
    }

    #[test]
    fn colours_are_written_only_where_they_are_wanted_and_count_for_no_width() {
        let line = || StyledLine::plain("web  ").then("failed", Some(Colour::Red));
        let show = |width, colours| TerminalStyle { width, colours }.show(vec![line()]);
        assert_eq!(show(None, false), "web  failed\n");
        assert_eq!(show(Some(11), true), "web  \x1b[31mfailed\x1b[0m\n");
        assert_eq!(show(Some(8), true), "web  \x1b[31mfa\x1b[0m…\n");
    }
}
