//! Lengths of time and texts of others, for people.

/// A length of time in its two largest units: `12s`, `3m05s`, `2h10m`, `4d03h`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is negative or too large is 0 or the most"
)]
pub(super) fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// A text of others in one line, which does nothing to a terminal but to be read.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The first `width` characters of a line; the last of them is an ellipsis where there were more.
pub(super) fn cut(line: &str, width: usize) -> String {
    match line.char_indices().nth(width) {
        None => line.to_owned(),
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_told_in_its_two_largest_units() {
        for (seconds, told) in [
            (0.0, "0s"),
            (59.4, "59s"),
            (59.6, "1m00s"),
            (185.0, "3m05s"),
            (7800.0, "2h10m"),
            (356_400.0, "4d03h"),
        ] {
            assert_eq!(time(seconds), told);
        }
    }

    #[test]
    fn a_text_of_others_is_one_line_without_controls() {
        assert_eq!(line("no\naddress\x1b[31m left\u{9b}"), "no address [31m left ");
    }

    #[test]
    fn what_is_too_long_ends_with_an_ellipsis() {
        assert_eq!((cut("übermaß", 7), cut("übermaß", 6)), ("übermaß".into(), "überm…".into()));
    }
}
