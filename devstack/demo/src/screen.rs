//! Shows the news: on a terminal a table that is drawn anew, elsewhere a line each.

use std::io::{self, IsTerminal, Write};

use tokio::sync::mpsc;

use crate::news::{Ending, Happening, News};
use crate::table::{duration, lines};

/// A terminal that does not tell its size has this many rows and columns.
const SIZE: (usize, usize) = (24, 80);

/// What was last said of each object, those that changed last at the end.
#[derive(Default)]
struct Screen {
    objects: Vec<Happening>,
    step: Option<&'static str>,
    /// How many lines of the terminal are the table's.
    drawn: usize,
}

/// Shows news until nobody has any.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) async fn show(mut news: mpsc::UnboundedReceiver<News>) -> io::Result<()> {
    let mut screen = Screen::default();
    let terminal = io::stdout().is_terminal();
    while let Some(first) = news.recv().await {
        let mut batch = vec![first];
        while let Ok(next) = news.try_recv() {
            batch.push(next);
        }
        let mut output = io::stdout().lock();
        let text = if terminal { screen.draw(batch, size()) } else { plain(&batch) };
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

/// The table of what each step took.
pub(crate) fn summary(endings: &[Ending]) -> String {
    let row = |ending: &Ending| {
        let outcome = if ending.reasons.is_empty() { "ok" } else { "failed" };
        [outcome.to_owned(), ending.step.to_owned(), duration(ending.took)]
    };
    let rows: Vec<_> = endings.iter().map(row).collect();
    lines(["", "STEP", "TOOK"], &rows).join("\n")
}

fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    size.filter(|(rows, columns)| *rows > 0 && *columns > 0).unwrap_or(SIZE)
}

fn plain(batch: &[News]) -> String {
    let line = |news: &News| match news {
        News::Object(one) => {
            format!(
                "{:>8}  {:<7}  {:<30}  {:<58}  {:>8}",
                duration(one.at),
                one.kind,
                one.object,
                one.what,
                duration(one.age)
            )
        }
        News::Began(step) => format!("--- {step}"),
        News::Ended(ending) => ended(ending),
        News::Said(line) => line.clone(),
    };
    batch.iter().map(|news| line(news) + "\n").collect()
}

fn ended(ending: &Ending) -> String {
    let took = duration(ending.took);
    if ending.reasons.is_empty() {
        return format!("--- done: {} ({took})", ending.step);
    }
    let failed = format!("--- failed: {} ({took})", ending.step);
    let reasons = ending.reasons.iter().map(|reason| format!("    {reason}"));
    std::iter::once(failed).chain(reasons).collect::<Vec<_>>().join("\n")
}

impl Screen {
    /// The text that brings the terminal up to date: what is said for good, and below it the table.
    fn draw(&mut self, batch: Vec<News>, (rows, columns): (usize, usize)) -> String {
        let mut text = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        for news in batch {
            match news {
                News::Object(happening) => self.note(happening),
                News::Began(step) => self.step = Some(step),
                News::Ended(ending) => {
                    self.step = None;
                    text += &(ended(&ending) + "\n");
                }
                News::Said(line) => text += &(line + "\n"),
            }
        }
        let table = self.table(rows);
        self.drawn = table.len();
        for line in table {
            text.extend(line.chars().take(columns));
            text.push('\n');
        }
        text
    }

    fn note(&mut self, happening: Happening) {
        self.objects.retain(|known| (known.kind, &known.object) != (happening.kind, &happening.object));
        self.objects.push(happening);
    }

    /// The table, as much of it as `rows` rows have room for: what changed last.
    fn table(&self, rows: usize) -> Vec<String> {
        let room = rows.saturating_sub(4).max(1);
        let hidden = self.objects.len().saturating_sub(room);
        let mut shown: Vec<_> = self.objects[hidden..].iter().collect();
        shown.sort_by_key(|one| (one.kind, &one.object));
        let row =
            |one: &&Happening| [one.kind.to_owned(), one.object.clone(), duration(one.age), one.what.clone()];
        let rows: Vec<_> = shown.iter().map(row).collect();
        let mut table = lines(["KIND", "OBJECT", "AFTER", "WHAT"], &rows);
        if hidden > 0 {
            table.push(format!("... and {hidden} more, which changed before"));
        }
        table.extend(self.step.map(|step| format!("--- {step}")));
        table
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn happened(object: &str, what: &str) -> News {
        let (at, age) = (Duration::from_millis(1500), Duration::from_millis(20));
        News::Object(Happening { at, kind: "Pod", object: object.into(), what: what.into(), age })
    }

    #[test]
    fn a_terminal_shows_the_last_of_each_object_and_is_drawn_anew() {
        let mut screen = Screen::default();
        let first = screen.draw(vec![happened("shop/b", "new"), happened("shop/a", "new")], (24, 80));
        assert_eq!(first, "KIND  OBJECT  AFTER  WHAT\nPod   shop/a  20 ms  new\nPod   shop/b  20 ms  new\n");
        let second = screen.draw(vec![happened("shop/a", "runs"), News::Said("hello".into())], (24, 80));
        let expected = "\x1b[3A\x1b[Jhello\nKIND  OBJECT  AFTER  WHAT\nPod   shop/a  20 ms  runs\nPod   shop/b  20 ms  new\n";
        assert_eq!(second, expected);
    }

    #[test]
    fn what_has_no_room_is_what_changed_longest_ago() {
        let mut screen = Screen::default();
        let batch = ["shop/a", "shop/b", "shop/c"].map(|object| happened(object, "new"));
        let drawn = screen.draw(batch.into(), (6, 16));
        assert_eq!(drawn, "KIND  OBJECT  AF\nPod   shop/b  20\nPod   shop/c  20\n... and 1 more, \n");
    }

    #[test]
    fn elsewhere_each_piece_of_news_is_a_line() {
        let ending =
            Ending { step: "roll", took: Duration::from_secs(2), reasons: vec!["a pod hangs".into()] };
        let text = plain(&[News::Began("roll"), happened("shop/a", "runs"), News::Ended(ending)]);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected =
            ["--- roll", "1.50 s Pod shop/a runs 20 ms", "--- failed: roll (2.00 s)", "a pod hangs"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_summary_says_of_each_step_how_it_ended() {
        let ok = Ending { step: "start", took: Duration::from_millis(120), reasons: Vec::new() };
        let failed =
            Ending { step: "roll", took: Duration::from_secs(9), reasons: vec!["a pod hangs".into()] };
        let expected = "        STEP   TOOK\nok      start  120 ms\nfailed  roll   9.00 s";
        assert_eq!(summary(&[ok, failed]), expected);
    }
}
