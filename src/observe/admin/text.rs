//! Text from other systems on the status page, escaped for HTML.

use std::fmt::{self, Display, Formatter, Write};

/// The maximum length of an error on the page, in characters.
const MAX_ERROR: usize = 300;

/// Text from other systems, written with its HTML characters escaped.
pub(super) struct Escaped<'t>(pub(super) &'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// An error message, escaped for HTML and cut off after [`MAX_ERROR`] characters.
pub(super) struct ErrorText<'t>(pub(super) &'t str);

impl Display for ErrorText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_ERROR) {
            None => Escaped(self.0).fmt(f),
            Some((end, _)) => write!(f, "{}…", Escaped(&self.0[..end])),
        }
    }
}
