//! The messages on a terminal: a table that is updated in place. Pure.

use crate::news::{Happening, News};
use crate::table::{duration, lines};

/// The last line of each object, the most recently changed at the end.
#[derive(Default)]
pub(crate) struct Terminal {
    objects: Vec<Happening>,
    /// The lines below the table: the current step, or the final message.
    foot: Vec<String>,
    /// The number of terminal rows drawn.
    drawn: usize,
}

impl Terminal {
    /// The text that brings the terminal up to date: what is said for good, below it the table and its foot. What stood
    /// there is written over, not wiped out first: that would flicker.
    pub(crate) fn draw(&mut self, batch: Vec<News>, (rows, columns): (usize, usize)) -> String {
        let mut said = Vec::new();
        for news in batch {
            match news {
                News::Object(happening) => self.note(happening),
                News::Began(step) => {
                    self.objects.retain(|one| !one.gone);
                    self.foot = vec![format!("--- {step}")];
                }
                News::Ended(ending) => {
                    self.foot.clear();
                    said.extend(ending.text().lines().map(str::to_owned));
                }
                News::Said(line) => said.push(line),
                News::Stays(text) => self.foot = text.lines().map(str::to_owned).collect(),
            }
        }
        let foot: usize = self.foot.iter().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
        // The other three: the head, the row that counts what is hidden, and that of the cursor.
        let table = self.table(rows.saturating_sub(foot.max(1) + 3).max(1));
        let back = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
        self.drawn = table.len() + foot;
        let table = table.iter().map(|line| clipped(line, columns));
        let lines = said.into_iter().chain(table).chain(self.foot.iter().cloned());
        back + &lines.map(|line| written_over(&line, columns)).collect::<String>() + "\x1b[J"
    }

    fn note(&mut self, happening: Happening) {
        self.objects.retain(|known| (known.kind, &known.object) != (happening.kind, &happening.object));
        self.objects.push(happening);
    }

    /// The table of as many objects as there is room for: those that changed last. Of the others only those that exist
    /// are remembered.
    fn table(&mut self, room: usize) -> Vec<String> {
        let mut older = self.objects.len().saturating_sub(room);
        let recent = self.objects.split_off(older);
        self.objects.retain(|one| !one.gone);
        older = self.objects.len();
        self.objects.extend(recent);
        let mut shown: Vec<_> = self.objects[older..].iter().collect();
        shown.sort_by_key(|one| (one.kind, &one.object));
        let row =
            |one: &&Happening| [one.kind.to_owned(), one.object.clone(), duration(one.age), one.what.clone()];
        let rows: Vec<_> = shown.iter().map(row).collect();
        let mut table = lines(["KIND", "OBJECT", "AFTER", "WHAT"], &rows);
        if older > 0 {
            table.push(format!("... and {older} more, which changed before"));
        }
        table
    }
}

/// As much of a line as fits into a row.
fn clipped(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// The line, and what clears the rest of its last row. A full row has no rest, and a terminal would clear its end.
fn written_over(line: &str, columns: usize) -> String {
    let width = line.chars().count();
    let clear = if width > 0 && width.is_multiple_of(columns) { "" } else { "\x1b[K" };
    format!("{line}{clear}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn happened(object: &str, what: &str) -> News {
        let (at, age) = (Duration::from_millis(1500), Duration::from_millis(20));
        let gone = what == "deleted";
        News::Object(Happening { at, kind: "Pod", object: object.into(), what: what.into(), gone, age })
    }

    #[test]
    fn a_terminal_shows_the_last_of_each_object_and_is_written_over() {
        let mut terminal = Terminal::default();
        let first = terminal.draw(vec![happened("shop/b", "new"), happened("shop/a", "new")], (24, 80));
        let expected = "KIND  OBJECT  AFTER  WHAT\x1b[K\nPod   shop/a  20 ms  new\x1b[K\nPod   shop/b  20 ms  new\x1b[K\n\x1b[J";
        assert_eq!(first, expected);
        let second = terminal.draw(vec![happened("shop/a", "runs"), News::Said("hello".into())], (24, 80));
        let expected = "\x1b[3Ahello\x1b[K\nKIND  OBJECT  AFTER  WHAT\x1b[K\nPod   shop/a  20 ms  runs\x1b[K\nPod   shop/b  20 ms  new\x1b[K\n\x1b[J";
        assert_eq!(second, expected);
    }

    /// The rows of what is drawn last, on a terminal of this size.
    fn drawn(terminal: &mut Terminal, batch: Vec<News>, size: (usize, usize)) -> Vec<String> {
        terminal
            .draw(batch, size)
            .replace("\x1b[K", "")
            .replace("\x1b[J", "")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn what_has_no_room_is_what_changed_longest_ago() {
        let batch = ["shop/a", "shop/b", "shop/c"].map(|object| happened(object, "new"));
        let rows = drawn(&mut Terminal::default(), batch.into(), (6, 16));
        assert_eq!(rows, ["KIND  OBJECT  A…", "Pod   shop/b  2…", "Pod   shop/c  2…", "... and 1 more,…"]);
    }

    #[test]
    fn what_was_deleted_is_shown_until_the_next_step_or_for_want_of_room() {
        let batch =
            || vec![happened("shop/a", "deleted"), happened("shop/b", "runs"), happened("shop/c", "new")];
        let mut terminal = Terminal::default();
        assert_eq!(drawn(&mut terminal, batch(), (24, 80)).len(), 4);
        let rows = drawn(&mut terminal, vec![News::Began("roll")], (24, 80));
        assert_eq!(rows[1..], ["Pod   shop/b  20 ms  runs", "Pod   shop/c  20 ms  new", "--- roll"]);
        let rows = drawn(&mut Terminal::default(), batch(), (6, 80));
        assert_eq!(rows[1..], ["Pod   shop/b  20 ms  runs", "Pod   shop/c  20 ms  new"]);
    }

    #[test]
    fn the_last_words_stay_in_view_below_the_table() {
        let mut terminal = Terminal::default();
        let words = vec![News::Began("roll"), News::Stays("all of it\ncame about, and it goes on".into())];
        assert_eq!(drawn(&mut terminal, words, (8, 20))[1..], ["all of it", "came about, and it goes on"]);
        let batch = ["shop/a", "shop/b", "shop/c"].map(|object| happened(object, "new"));
        let rows = drawn(&mut terminal, batch.into(), (8, 20));
        assert!(rows[0].starts_with("\x1b[4A"), "the second line takes two rows: {rows:?}");
        assert_eq!(rows[1..3], ["Pod   shop/b  20 ms…", "Pod   shop/c  20 ms…"]);
        assert_eq!(rows[3..], ["... and 1 more, whi…", "all of it", "came about, and it goes on"]);
    }

    #[test]
    fn a_full_row_is_not_cleared_behind_its_end() {
        assert_eq!(written_over("12345678", 4), "12345678\n");
        assert_eq!(written_over("12345", 4), "12345\x1b[K\n");
        assert_eq!(written_over("", 4), "\x1b[K\n");
    }
}
