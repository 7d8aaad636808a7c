//! Draws the view of `staffetta top`.

use ratatui::Frame;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::view::View;
use crate::cli::line::{Colour, StyledLine};

/// The smallest terminal in which the view is shown, in columns and rows.
const MIN_SIZE: (u16, u16) = (40, 6);

/// Draws the view of `staffetta top`. Scrolls back if it has fewer lines than before.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    let (width, height) = (area.width, area.height);
    if width < MIN_SIZE.0 || height < MIN_SIZE.1 {
        let (columns, rows) = MIN_SIZE;
        let text = format!("too small: {width}x{height}, at least {columns}x{rows}");
        return put(frame, 0, StyledLine::plain(&text));
    }
    let (title, body) = (view.title(), view.body());
    let room = usize::from(height).saturating_sub(title.len() + 1);
    view.position = view.position.min(body.len().saturating_sub(room));
    let visible = view.position..body.len().min(view.position + room);
    let footer = view.footer(visible.clone(), body.len());
    let lines = title.into_iter().chain(body[visible].iter().cloned());
    for (row, line) in (0..height - 1).zip(lines) {
        put(frame, row, line);
    }
    put(frame, height - 1, footer);
}

/// Draws a line at `row`, truncated to the width of the terminal.
fn put(frame: &mut Frame<'_>, row: u16, line: StyledLine) {
    let width = frame.area().width;
    let span = |(text, colour): (String, Option<Colour>)| match colour {
        None => Span::raw(text),
        Some(Colour::Red) => Span::styled(text, Style::new().fg(Color::Red)),
        Some(Colour::Yellow) => Span::styled(text, Style::new().fg(Color::Yellow)),
        Some(Colour::Green) => Span::styled(text, Style::new().fg(Color::Green)),
    };
    let line: Line<'_> = line.truncated(width.into()).0.into_iter().map(span).collect();
    frame.buffer_mut().set_line(0, row, &line, width);
}

#[cfg(test)]
mod tests;
