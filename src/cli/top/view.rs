//! The contents of `staffetta top`: the last two states of the controller, the order of the objects and the scroll position.

use tokio::time::Instant;

use super::Answer;
use super::rates::Rates;
use crate::cli::line::{Colour, StyledLine};
use crate::cli::status::overview::{
    counts, head, no_objects, objects, paint_handler, state, undecodable, watches,
};
use crate::cli::table::TextTable;
use crate::config::TimeSpan;
use crate::state::{HandlerSummary, ObjectSummary, Query, StateSnapshot, WatchSummary, duration, full_name};
use staffetta_handler::causes;

/// The order of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    /// The objects that fail or wait the longest come first.
    #[default]
    Age,
    /// The objects with the most failed attempts come first.
    Attempts,
    /// By handler, namespace and name.
    Name,
}

/// The contents of `staffetta top`: the last two states of the controller, the order of the objects and the scroll position.
pub(super) struct View {
    /// The time between two requests.
    interval: TimeSpan,
    previous: Option<StateSnapshot>,
    current: StateSnapshot,
    /// The time at which `current` was received.
    received: Instant,
    /// The error of the last request; `None` if it was answered.
    problem: Option<String>,
    order: Order,
    /// The number of lines of the body above the visible ones.
    pub(super) position: usize,
}

impl View {
    /// Creates the view of the first state.
    pub(super) fn new(interval: TimeSpan, first: StateSnapshot) -> Self {
        let (received, order) = (Instant::now(), Order::default());
        Self { interval, previous: None, current: first, received, problem: None, order, position: 0 }
    }

    /// Replaces the state by the next one.
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

    /// Switches to the next order of the objects.
    pub(super) fn reorder(&mut self) {
        self.order = match self.order {
            Order::Age => Order::Attempts,
            Order::Attempts => Order::Name,
            Order::Name => Order::Age,
        };
    }

    /// Returns the lines that are always visible: the title and, after a lost connection, the error and the age of the state.
    pub(super) fn title(&self) -> Vec<StyledLine> {
        let problem = self.problem.iter().map(|problem| {
            let age = duration(self.received.elapsed().as_secs_f64());
            let text = format!("no answer, this is the state of {age} ago: {problem}");
            StyledLine::default().then(&text, Some(Colour::Red))
        });
        head(&self.current).into_iter().take(1).chain(problem).collect()
    }

    /// Returns the lines that can be scrolled.
    pub(super) fn body(&self) -> Vec<StyledLine> {
        let rates = Rates { previous: self.previous.as_ref(), current: &self.current };
        let mut lines: Vec<_> = head(&self.current).into_iter().skip(1).collect();
        lines.push(StyledLine::default());
        let events = |watch: &WatchSummary| number(rates.events(&watch.kind));
        lines.extend(watches(&self.current.watches, "EVENTS/S", events).lines());
        lines.push(StyledLine::default());
        lines.extend(handlers(&self.current.handlers, &rates).lines());
        lines.push(StyledLine::default());
        lines.extend(undecodable(&self.current));
        if self.current.objects.is_empty() {
            lines.push(no_objects(&self.current, &Query::default(), 0));
            return lines;
        }
        lines.extend(objects(self.ordered()).lines());
        if self.current.omitted > 0 {
            lines.push(StyledLine::plain(&format!("... and {} more", self.current.omitted)));
        }
        lines
    }

    /// Returns all lines, for a view that nobody can scroll.
    pub(super) fn lines(&self) -> Vec<StyledLine> {
        self.title().into_iter().chain(self.body()).collect()
    }

    /// Returns the last line: the keys, and which of the `total` lines of the body are visible.
    pub(super) fn footer(&self, visible: std::ops::Range<usize>, total: usize) -> StyledLine {
        let order = match self.order {
            Order::Age => "age",
            Order::Attempts => "attempts",
            Order::Name => "name",
        };
        let (first, last, interval) = (visible.start + 1, visible.end, self.interval);
        StyledLine::plain(&format!(
            "q quit  j/k scroll  s sort ({order})  lines {first}-{last} of {total}  every {interval}"
        ))
    }

    /// Returns the objects in the order that the user chose: the oldest first, those with the most failed attempts first, or by name.
    fn ordered(&self) -> Vec<&ObjectSummary> {
        let mut objects: Vec<_> = self.current.objects.iter().collect();
        let attempts = |object: &ObjectSummary| object.last_error.as_ref().map_or(0, |error| error.attempts);
        objects.sort_by(|one, other| match self.order {
            Order::Age => other.age_seconds().total_cmp(&one.age_seconds()),
            Order::Attempts => attempts(other).cmp(&attempts(one)),
            Order::Name => {
                let key = |object: &ObjectSummary| {
                    (object.handler.clone(), full_name(object.namespace.as_deref(), &object.name))
                };
                key(one).cmp(&key(other))
            }
        });
        objects
    }
}

/// Returns the table of the handlers with their rates.
fn handlers(handlers: &[HandlerSummary], rates: &Rates<'_>) -> TextTable<8> {
    let head = ["HANDLER", "ATTEMPTS/S", "HELD", "QUEUED", "RUNNING", "RETRYING", "FAILED", "STATE"];
    let mut table = TextTable::new(head);
    for handler in handlers {
        let [held, queued, running, retrying, failed] = counts(handler).map(|count| count.to_string());
        let attempts = number(rates.attempts(&handler.name));
        table.row([&handler.name, &attempts, &held, &queued, &running, &retrying, &failed, &state(handler)]);
        paint_handler(&mut table, handler, [5, 6, 7]);
    }
    table
}

/// Returns a rate with one decimal; a dash if there is none.
fn number(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}
