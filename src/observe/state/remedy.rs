//! The remedies for reasons of failures, from the table in docs/events.md.

/// The text of docs/events.md, in Markdown. Each row of the table in its section `Reasons` contains a reason, its meaning and its remedy.
const EVENTS: &str = include_str!("../../../docs/events.md");

/// Returns the meaning and the remedy of `reason`, as plain text; `None` if [`EVENTS`] does not contain it, as for a reason of a handler
/// that does not belong to staffetta.
pub(crate) fn remedy(reason: &str) -> Option<(String, String)> {
    let row = EVENTS.lines().find_map(|line| line.strip_prefix(&format!("| `{reason}` | ")))?;
    let (meaning, remedy) = row.strip_suffix(" |")?.rsplit_once(" | ")?;
    Some((plain(meaning), plain(remedy)))
}

/// Returns `text` without Markdown: code spans lose their backticks, and a link is replaced by its text.
fn plain(text: &str) -> String {
    let text = text.replace('`', "");
    let mut parts = text.split("](");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The text of a link begins at the last bracket, and its target ends at the next parenthesis.
        if let Some(start) = result.rfind('[') {
            result.remove(start);
        }
        result.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_of_a_reason_is_that_of_the_reference() {
        let (meaning, remedy) = remedy("QuotaExceeded").unwrap();
        assert_eq!(meaning, "a quota of the project is exhausted");
        assert_eq!(remedy, "raise it, or release resources; the objects are retried");
        assert_eq!(super::remedy("Quota"), None);
    }

    #[test]
    fn every_reason_has_a_remedy_without_markdown() {
        let rows = EVENTS.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let table: Vec<_> =
            rows.filter(|(reason, _)| reason.starts_with(|c: char| c.is_ascii_uppercase())).collect();
        assert!(table.len() > 50, "the table was read");
        for (reason, _) in table {
            let (meaning, remedy) = remedy(reason).unwrap_or_else(|| panic!("{reason}"));
            for text in [meaning, remedy] {
                assert!(
                    !text.is_empty() && !text.contains(['`', '|']) && !text.contains("]("),
                    "{reason}: {text}"
                );
            }
        }
    }

    #[test]
    fn of_a_link_its_text_remains() {
        assert_eq!(plain("see [docs](a.md#b) and `x`, or [y](z)"), "see docs and x, or y");
    }
}
