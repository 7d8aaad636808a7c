//! Text tables whose columns are as wide as their widest cell.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::line::{Colour, StyledLine, TerminalStyle, single_line};

/// A table with a header row. A column without any text is not shown.
pub(super) struct TextTable<const COLUMNS: usize> {
    rows: Vec<[(String, Option<Colour>); COLUMNS]>,
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    pub(super) fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(|cell| (cell.to_owned(), None))] }
    }

    /// Returns the table of `rows`, a list of objects: a column for each of `fields`, with its name in upper case as the heading.
    pub(super) fn of(fields: [&str; COLUMNS], rows: &impl Serialize) -> Self {
        let mut table = Self { rows: vec![fields.map(|field| (field.to_uppercase(), None))] };
        let rows = serde_json::to_value(rows).unwrap_or_default();
        for row in rows.as_array().into_iter().flatten() {
            table.row(fields.map(|field| match &row[field] {
                Value::Bool(true) => "yes",
                Value::Bool(false) => "no",
                value => value.as_str().unwrap_or_default(),
            }));
        }
        table
    }

    /// Adds a row. Line breaks and control characters in the cells are replaced.
    pub(super) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(|cell| (single_line(cell), None)));
    }

    /// Gives a cell of the last row a colour.
    pub(super) fn paint(&mut self, column: usize, colour: Colour) {
        if let Some(row) = self.rows.last_mut() {
            row[column].1 = Some(colour);
        }
    }

    /// Returns the rows as lines, the header row first, with aligned columns and without spaces at the ends.
    pub(super) fn lines(&self) -> Vec<StyledLine> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].0.chars().count()).max();
        let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or_default());
        let line = |row: &[(String, Option<Colour>); COLUMNS]| {
            let used =
                row.iter().rposition(|(cell, _)| !cell.trim_end().is_empty()).map_or(0, |last| last + 1);
            let mut parts = Vec::new();
            let shown = row[..used].iter().enumerate().filter(|(column, _)| widths[*column] > 0);
            for (column, (cell, colour)) in shown {
                let space = if column + 1 == used { 0 } else { widths[column] + 2 - cell.chars().count() };
                let cell = if space == 0 { cell.trim_end() } else { cell };
                parts.extend([(cell.to_owned(), *colour), (" ".repeat(space), None)]);
            }
            StyledLine(parts)
        };
        self.rows.iter().map(line).collect()
    }
}

impl<const COLUMNS: usize> fmt::Display for TextTable<COLUMNS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&TerminalStyle::default().show(self.lines()))
    }
}
