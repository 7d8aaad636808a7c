//! The contents of `staffetta top`: the last two states of the controller, and the scroll position.

use tokio::time::Instant;

use super::Answer;
use crate::base::config::TimeSpan;
use crate::observe::state::{Query, StateSnapshot, duration};
use crate::operate::cli::line::{Colour, StyledLine};
use crate::operate::cli::status::overview::{Columns, overview, title};
use crate::operate::cli::status::rates::Rates;
use staffetta_handler::causes;

/// The contents of `staffetta top`: the last two states of the controller, and the scroll position.
pub(super) struct View {
    /// The time between two requests.
    interval: TimeSpan,
    previous: Option<StateSnapshot>,
    current: StateSnapshot,
    /// The time at which `current` was received.
    received: Instant,
    /// The error of the last request; `None` if it was answered.
    problem: Option<String>,
    /// The number of lines of the body above the visible ones.
    pub(super) position: usize,
}

impl View {
    /// Creates the view of the state `first`, without rates, which need two states.
    pub(super) fn new(interval: TimeSpan, first: StateSnapshot) -> Self {
        Self {
            interval,
            previous: None,
            current: first,
            received: Instant::now(),
            problem: None,
            position: 0,
        }
    }

    /// Makes `next` the current state, and the current state the previous one, from which rates are computed.
    pub(super) fn update(&mut self, next: StateSnapshot) {
        self.previous = Some(std::mem::replace(&mut self.current, next));
        (self.received, self.problem) = (Instant::now(), None);
    }

    /// Records the result of a request: replaces the state by the new one or, after an error, keeps the state and shows the error.
    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Ok(next) => self.update(next),
            Err(error) => self.problem = Some(causes(&error)),
        }
    }

    /// Returns the lines that are always visible: the title and, if the last request failed, the error and the age of the state.
    pub(super) fn title(&self) -> Vec<StyledLine> {
        let problem = self.problem.iter().map(|problem| {
            let age = duration(self.received.elapsed().as_secs_f64());
            let text = format!("no answer, this is the state of {age} ago: {problem}");
            StyledLine::default().then(&text, Some(Colour::Red))
        });
        [title(&self.current)].into_iter().chain(problem).collect()
    }

    /// Returns the lines that can be scrolled: the overview without its first line.
    pub(super) fn body(&self) -> Vec<StyledLine> {
        let rates = Rates { previous: self.previous.as_ref(), current: &self.current };
        overview(&self.current, &Columns::Rates(rates), &Query::default(), 0).split_off(1)
    }

    /// Returns the title and the whole body, for `--once`, which prints one frame.
    pub(super) fn lines(&self) -> Vec<StyledLine> {
        self.title().into_iter().chain(self.body()).collect()
    }

    /// Returns the last line: the keys, and which of the `total` lines of the body are visible.
    pub(super) fn footer(&self, visible: std::ops::Range<usize>, total: usize) -> StyledLine {
        let (first, last, interval) = (visible.start + 1, visible.end, self.interval);
        StyledLine::plain(&format!("q quit  j/k scroll  lines {first}-{last} of {total}  every {interval}"))
    }
}
