//! Reports the results of a benchmark: a table, and `target/bench/NAME.json`.

#![allow(dead_code, reason = "each benchmark takes what it needs")]
#![allow(clippy::print_stdout, reason = "the table is what a benchmark is for")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// One line of a result.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) baseline: Option<f64>,
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Option<String>,
    pub(crate) met: Option<bool>,
}

impl Row {
    /// A figure that stands alone.
    pub(crate) fn new(metric: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self { metric: metric.into(), unit, ours, baseline: None, ratio: None, goal: None, met: None }
    }

    /// Beside what it is measured against, taken in the same run.
    pub(crate) fn against(mut self, baseline: f64) -> Self {
        self.baseline = Some(baseline);
        self.ratio = Some(self.ours / baseline);
        self
    }

    /// Sets the goal in words, and whether it was met.
    pub(crate) fn goal(mut self, goal: impl Into<String>, met: bool) -> Self {
        self.goal = Some(match self.goal.take() {
            Some(first) => format!("{first}, {}", goal.into()),
            None => goal.into(),
        });
        self.met = Some(self.met.unwrap_or(true) && met);
        self
    }
}

/// A number from the environment, for a shorter or a longer run.
pub(crate) fn number(variable: &str, default: usize) -> usize {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// The median of a few figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The largest of a few figures.
pub(crate) fn largest(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(0.0, f64::max)
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Prints the table and writes the file.
pub(crate) fn publish(name: &str, rows: &[Row]) {
    println!("{:<44} {:>14} {:>14} {:>7}  goal", name, "ours", "baseline", "ratio");
    for row in rows {
        let figure = |value: Option<f64>| value.map_or_else(String::new, grouped);
        let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let met = row.met.map_or("", |met| if met { " (met)" } else { " (MISSED)" });
        let goal = row.goal.as_deref().unwrap_or_default();
        let metric = format!("{} [{}]", row.metric, row.unit);
        println!(
            "{metric:<44} {:>14} {:>14} {ratio:>7}  {goal}{met}",
            grouped(row.ours),
            figure(row.baseline)
        );
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let text = serde_json::to_string_pretty(rows).expect("rows are plain data");
    fs::write(folder.join(format!("{name}.json")), text).expect("the target folder can be written");
}

/// `1234567.8` as `1,234,568`; small figures keep two digits.
fn grouped(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 && digit != '-' {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
