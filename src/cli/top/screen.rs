//! The terminal and its keys.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::frame::draw;
use super::view::View;
use super::{Answer, ScreenError};

/// The interval at which the view is drawn even without a new state, because it shows the age of the state.
const REDRAW: Duration = Duration::from_secs(1);

/// The terminal, which is restored when this value is dropped, and on a panic.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Returns an error if there is no terminal.
    pub(super) fn check() -> Result<(), ScreenError> {
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if is_terminal { Ok(()) } else { Err(ScreenError::NoTerminal) }
    }

    /// Switches the terminal to its alternate screen and to raw mode.
    pub(super) fn open() -> Result<Self, ScreenError> {
        ratatui::try_init().map(Self).map_err(|error| {
            // A part of it may have been done.
            let _ = ratatui::try_restore();
            ScreenError::Terminal(error)
        })
    }

    /// Draws the view, and updates it with `answers` and keys, until the user quits or a signal ends the program.
    pub(super) async fn run(
        &mut self,
        view: &mut View,
        mut answers: mpsc::Receiver<Answer>,
    ) -> Result<(), ScreenError> {
        let mut keys = keys();
        let ended = |kind| signal(kind).map_err(ScreenError::Terminal);
        let (mut terminate, mut hangup) = (ended(SignalKind::terminate())?, ended(SignalKind::hangup())?);
        let mut redraw = interval(REDRAW);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.0.draw(|frame| draw(frame, view)).map_err(ScreenError::Terminal)?;
            tokio::select! {
                Some(answer) = answers.recv() => view.answered(answer),
                // Without keys, nobody can quit.
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if !press(view, key) => return Ok(()),
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = redraw.tick() => {}
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing left to do if it fails.
        let _ = ratatui::try_restore();
    }
}

/// Handles a key, which scrolls the view or changes its order. Returns `false` for the keys that quit.
pub(super) fn press(view: &mut View, key: KeyEvent) -> bool {
    let KeyEvent { code, modifiers, kind, .. } = key;
    if kind == KeyEventKind::Release {
        return true;
    }
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('j') | KeyCode::Down => view.position += 1,
        KeyCode::Char('k') | KeyCode::Up => view.position = view.position.saturating_sub(1),
        KeyCode::Char('s') => view.reorder(),
        _ => {}
    }
    true
}

/// Reads keys and changes of the size in a thread. The channel closes when the terminal is gone.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(16);
    // The thread ends with the process, because reading cannot be interrupted.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    keys
}
