//! The run options of a container: at most 30 lines of 235 characters (YANG list `run-opts`), in which blanks separate
//! options.

use crate::model::config::{Line, RunOptions};

/// The maximum number of lines of run options of a container.
const LINES: usize = 30;

/// The maximum length of a line of run options, in characters.
pub(super) const LINE: usize = 235;

/// The lines of run options that are collected for a container before its installation.
#[derive(Default)]
pub(super) struct Options(Vec<String>);

impl Options {
    /// Adds an option and its value in a separate line. The error is the reason for refusing the value: a forbidden character, or no room.
    pub(super) fn line(&mut self, option: &str, value: &str) -> Result<(), String> {
        self.0.push(checked(option, value)?);
        self.bounded()
    }

    /// Adds an option and its value to the last line if they fit there and the line contains no label, otherwise in a new line. The error
    /// is the reason for refusing the value: a forbidden character, or no room.
    pub(super) fn packed(&mut self, option: &str, value: &str) -> Result<(), String> {
        let text = checked(option, value)?;
        match self.last_with_room(&text).filter(|last| !last.starts_with("--label ")) {
            Some(last) => *last = format!("{last} {text}"),
            None => self.0.push(text),
        }
        self.bounded()
    }

    /// Adds an option and its value to the last line. Returns an error if they do not fit there.
    pub(super) fn joined(&mut self, option: &str, value: &str) -> Result<(), String> {
        let text = checked(option, value)?;
        let last = self.last_with_room(&text).ok_or_else(too_long)?;
        *last = format!("{last} {text}");
        Ok(())
    }

    /// Returns the last line if `text` fits into it after a blank.
    fn last_with_room(&mut self, text: &str) -> Option<&mut String> {
        self.0.last_mut().filter(|last| last.len() + 1 + text.len() <= LINE)
    }

    /// Returns an error if there are too many lines.
    fn bounded(&self) -> Result<(), String> {
        if self.0.len() > LINES {
            return Err(format!(
                "the device takes at most {LINES} lines of {LINE} characters for all options of a container"
            ));
        }
        Ok(())
    }

    /// Returns the lines with their indexes, from 1.
    pub(super) fn finish(self) -> RunOptions {
        let line = |(line_index, line_run_opts)| Line { line_index, line_run_opts };
        RunOptions { run_opts: (1..).zip(self.0).map(line).collect() }
    }
}

/// Returns the option with its value, or the reason for refusing it: the value has a character that the device does not pass on unchanged,
/// or the text is longer than a line.
fn checked(option: &str, value: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && !r#""'\$`;|&<>()*"#.contains(c);
    if !value.chars().all(plain) {
        return Err("the device takes only printable ASCII characters without blanks, quotes and any of $ \\ ` ; | & < > ( ) * there".to_owned());
    }
    let text = if value.is_empty() { option.to_owned() } else { format!("{option} {value}") };
    if text.len() > LINE { Err(too_long()) } else { Ok(text) }
}

/// Returns the reason for refusing an option that does not fit into a line.
fn too_long() -> String {
    format!("the device takes at most {LINE} characters there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_lines_of_their_own_and_the_rest_shares_them() {
        let mut options = Options::default();
        options.line("--label", "a=b").unwrap();
        options.packed("-e", "A=1").unwrap();
        options.packed("-e", "B=2").unwrap();
        options.packed("-e", &format!("C={}", "x".repeat(222))).unwrap();
        let lines: Vec<_> =
            options.finish().run_opts.into_iter().map(|line| (line.line_index, line.line_run_opts)).collect();
        assert_eq!(lines[0], (1, "--label a=b".to_owned()));
        assert_eq!(lines[1], (2, "-e A=1 -e B=2".to_owned()));
        assert_eq!((lines[2].0, lines[2].1.len(), lines.len()), (3, 227, 3));
    }

    #[test]
    fn a_line_has_at_most_235_characters_and_there_are_at_most_30() {
        let mut options = Options::default();
        assert_eq!(
            options.packed("-e", &"x".repeat(233)).unwrap_err(),
            "the device takes at most 235 characters there"
        );
        for _ in 0..30 {
            options.packed("-e", &"x".repeat(232)).unwrap();
        }
        assert_eq!(
            options.packed("-e", "x").unwrap_err(),
            "the device takes at most 30 lines of 235 characters for all options of a container"
        );
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_refused() {
        for value in [
            "a b", "a\"b", "a'b", "a\\b", "$HOME", "a`b", "a;b", "a|b", "a&b", "a<b", "a>b", "(a", "a)",
            "a*", "ü", "a\nb", "a\tb",
        ] {
            let why = Options::default().packed("-e", value).unwrap_err();
            assert!(why.starts_with("the device takes only printable ASCII characters"), "{value}: {why}");
        }
    }
}
