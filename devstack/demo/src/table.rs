//! Formats rows of cells as lines with aligned columns. Pure.

use std::time::Duration;

/// The lines of a table, its head first.
pub(crate) fn lines<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |cells: [&str; COLUMNS]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(line(head)).chain(body).collect()
}

/// A duration as people read it: milliseconds below a second, then hundredths of a second.
pub(crate) fn duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.2} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["Pod", "shop/web"], ["Service", "a"]].map(|row| row.map(str::to_owned));
        assert_eq!(lines(["KIND", "NAME"], &rows), ["KIND     NAME", "Pod      shop/web", "Service  a"]);
        assert_eq!(lines(["KIND", "NAME"], &[]), ["KIND  NAME"]);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(Duration::from_micros(45_900)), "45 ms");
        assert_eq!(duration(Duration::from_millis(12_345)), "12.35 s");
    }
}
