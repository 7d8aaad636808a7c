//! The terminal of `staffetta top`: draws the view, and reads the keys.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::{Stream, StreamExt};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::{DefaultTerminal, Frame};
use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::Answer;
use super::view::View;
use crate::operate::cli::CommandError;
use crate::operate::cli::line::{Colour, StyledLine};

/// The interval at which the view is drawn even without a new state, because it shows the age of the state.
const REDRAW: Duration = Duration::from_secs(1);

/// The terminal, which is restored when this value is dropped, and on a panic. The drop of [`DefaultTerminal`] is not run, because it
/// panics if the terminal is closed.
pub(super) struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    /// Fails unless standard input and standard output are both a terminal.
    pub(super) fn check() -> Result<(), CommandError> {
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            return Ok(());
        }
        let text = "standard input and output are not both a terminal; `--once` prints one frame as text";
        Err(CommandError::Usage(text.to_owned()))
    }

    /// Switches the terminal to its alternate screen and to raw mode.
    pub(super) fn open() -> Result<Self, CommandError> {
        ratatui::try_init().map(ManuallyDrop::new).map(Self).map_err(|error| {
            // A part of it may have been done.
            let _ = ratatui::try_restore();
            CommandError::Terminal(error)
        })
    }

    /// Draws the view, and updates it with `answers` and keys, until the user quits, the terminal is closed, or a signal ends the program.
    pub(super) async fn run(
        &mut self,
        view: &mut View,
        answers: impl Stream<Item = Answer>,
    ) -> Result<(), CommandError> {
        let mut answers = pin!(answers);
        let mut keys = EventStream::new();
        let ended = |kind| signal(kind).map_err(CommandError::Terminal);
        let (mut terminate, mut hangup) = (ended(SignalKind::terminate())?, ended(SignalKind::hangup())?);
        let mut redraw = interval(REDRAW);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (_open, view_open) = mpsc::channel();
        thread::spawn(move || end_without_terminal(&view_open));
        loop {
            self.0.draw(|frame| draw(frame, view)).map_err(CommandError::Terminal)?;
            tokio::select! {
                Some(answer) = answers.next() => view.answered(answer),
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) if !press(view, key) => return Ok(()),
                    Some(Ok(_)) => {}
                    // The terminal is gone. Without keys, nobody can quit.
                    Some(Err(_)) | None => return Ok(()),
                },
                _ = redraw.tick() => {}
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
            }
        }
    }
}

/// Ends the program when its terminal is closed, unless the sender of `view` is dropped within a second. The library that reads the keys then reads
/// in an endless loop, and may do so on the thread that draws the view.
fn end_without_terminal(view: &mpsc::Receiver<()>) {
    while view.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
        let is_closed = tcgetwinsize(io::stdin()).is_err();
        if is_closed && view.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
            std::process::exit(1);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing left to do if it fails.
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Draws the view of `staffetta top`. Scrolls back if it has fewer lines than before.
fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let height = frame.area().height;
    if height == 0 {
        return;
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

/// Handles a key: scrolls the view, or returns `false` if the user quits (`q`, Escape or Ctrl-C).
fn press(view: &mut View, key: KeyEvent) -> bool {
    let KeyEvent { code, modifiers, kind, .. } = key;
    if kind == KeyEventKind::Release {
        return true;
    }
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('j') | KeyCode::Down => view.position += 1,
        KeyCode::Char('k') | KeyCode::Up => view.position = view.position.saturating_sub(1),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests;
