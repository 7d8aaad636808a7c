//! Shows the messages: in a table on a terminal, otherwise line by line.

use std::io::{self, IsTerminal, Write};

use tokio::sync::mpsc;

use crate::news::{Ending, News};
use crate::table::{duration, lines};
use crate::terminal::Terminal;

/// A terminal that does not tell its size has this many rows and columns.
const SIZE: (usize, usize) = (24, 80);

/// Shows news until nobody has any.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) async fn show(mut news: mpsc::UnboundedReceiver<News>) -> io::Result<()> {
    let mut terminal = Terminal::default();
    let is_terminal = io::stdout().is_terminal();
    while let Some(first) = news.recv().await {
        let mut batch = vec![first];
        while let Ok(next) = news.try_recv() {
            batch.push(next);
        }
        let mut output = io::stdout().lock();
        let text = if is_terminal { terminal.draw(batch, size()) } else { plain(&batch) };
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
    let row = |at: &str, kind: &str, object: &str, after: &str, what: &str| {
        format!("{at:>8}  {kind:<7}  {object:<30}  {after:>7}  {what}")
    };
    let line = |news: &News| match news {
        News::Object(one) => row(&duration(one.at), one.kind, &one.object, &duration(one.age), &one.what),
        News::Began(step) => format!("--- {step}\n{}", row("TIME", "KIND", "OBJECT", "AFTER", "WHAT")),
        News::Ended(ending) => ending.text(),
        News::Said(text) | News::Stays(text) => text.clone(),
    };
    batch.iter().map(|news| line(news) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::news::Happening;

    #[test]
    fn elsewhere_each_piece_of_news_is_a_line() {
        let ending =
            Ending { step: "roll", took: Duration::from_secs(2), reasons: vec!["a pod hangs".into()] };
        let (at, age) = (Duration::from_millis(1500), Duration::from_millis(20));
        let object = "shop/a".into();
        let runs = News::Object(Happening { at, kind: "Pod", object, what: "runs".into(), gone: false, age });
        let text = plain(&[News::Began("roll"), runs, News::Ended(ending)]);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "--- roll",
            "TIME KIND OBJECT AFTER WHAT",
            "1.50 s Pod shop/a 20 ms runs",
            "--- failed: roll (2.00 s)",
            "a pod hangs",
        ];
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
