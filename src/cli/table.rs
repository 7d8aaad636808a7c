//! A table for people, whose columns are as wide as they must be.

use std::fmt;

pub(super) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
    /// How long a line may be, in characters.
    width: Option<usize>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(super) fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(str::to_owned)], width: None }
    }

    pub(super) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(str::to_owned));
    }

    /// The same table with no line longer than `width`: what is too long ends with an ellipsis.
    pub(super) fn within(mut self, width: Option<usize>) -> Self {
        self.width = width;
        self
    }
}

/// The first `width` characters of a line; the last of them is an ellipsis where there were more.
pub(super) fn cut(line: &str, width: usize) -> String {
    match line.char_indices().nth(width) {
        None => line.to_owned(),
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or_default());
        for row in &self.rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let line = line.trim_end();
            writeln!(formatter, "{}", self.width.map_or_else(|| line.to_owned(), |width| cut(line, width)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_ends_with_an_ellipsis() {
        let mut table = Table::new(["NAME", "ERROR"]);
        table.row(["web", "no address is left"]);
        assert_eq!(table.to_string(), "NAME  ERROR\nweb   no address is left\n");
        assert_eq!(table.within(Some(12)).to_string(), "NAME  ERROR\nweb   no ad…\n");
        assert_eq!((cut("übermaß", 7), cut("übermaß", 6)), ("übermaß".into(), "überm…".into()));
    }
}
